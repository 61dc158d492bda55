"""What is trained: model, data, and how the data is divided. testbed.tasks makes it and knows the names."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from testbed.scenario.base import Choice, Model, Nothing, Number, Positive
from testbed.scenario.named import Name, Named

DATA = ("digits", "fashion-mnist", "cifar10", "text")  # for editors
WITHOUT_DATA = ("quadratic", "consensus")  # tasks that are a model alone


class Split(Choice):
    """How the training data is divided among the workers."""

    what: ClassVar[str] = "split"

    iid: Nothing | None = Field(default=None, description="At random: all workers see the same distribution.")
    dirichlet: Number | None = Field(
        default=None,
        gt=0,
        description="Shares of each class are drawn from a Dirichlet distribution: 0.1 very uneven, 1 uneven, "
        "100 nearly even.",
    )
    shards: Positive | None = Field(
        default=None,
        description="Data is sorted by class and cut; each worker gets this many pieces, so about as many classes.",
    )
    contiguous: Nothing | None = Field(default=None, description="Text in one piece for each worker.")
    by_source: Nothing | None = Field(
        default=None, alias="by-source", description="By who made the data (writer, book, …), where the data set says."
    )


class ModelChoice(Named):
    """A model: its name, or {name: {options}}, e.g. {mlp: {hidden: [128]}}."""

    what: ClassVar[str] = "model"
    known: ClassVar[tuple[str, ...]] = ("logistic", "mlp", "cnn", "resnet20", "lstm", "gpt", *WITHOUT_DATA)


class Task(Model):
    """Model and data: a name such as digits, or a mapping."""

    data: Name | None = Field(
        default=None,
        description="Data set. digits comes along and trains in seconds; `testbed data` gets others. "
        "Default: the model's usual one, or digits.",
        json_schema_extra={"anyOf": [{"enum": list(DATA)}, {"type": "string"}]},
    )
    model: ModelChoice | None = Field(
        default=None, description="Model, e.g. resnet20 or {mlp: {hidden: [128]}}. Default: the usual one for the data."
    )
    batch: Positive | None = Field(default=None, description="Examples per worker and step. Default: 32.")
    split: Split | None = Field(
        default=None,
        description="How data is divided: iid, {dirichlet: 0.5}, {shards: 2}, by-source or contiguous. Uneven data is "
        "where gossip methods differ most. Default: iid for images, contiguous for text.",
    )
    reshuffle: bool | None = Field(
        default=None,
        description="true: divide the data anew in each epoch, as in one data centre. Default: it stays where it is, "
        "as at different sites.",
    )
    test_samples: Positive | None = Field(
        default=None, description="Evaluate on this many held-out samples, where evaluation takes long. Default: all."
    )
    augment: bool | None = Field(
        default=None, description="Images: random crops and flips. Default: for the data sets where they help."
    )
    tokens: Literal["words", "bytes"] | None = Field(
        default=None, description="Text: what a token is. Default: the model's usual."
    )
    bptt: Positive | None = Field(default=None, description="Text: tokens per window. Default: the model's usual.")
    carry: bool | None = Field(
        default=None, description="Text: a recurrent model goes on from the last window's state. Default: it does not."
    )

    @classmethod
    def written_out(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"model": value} if value in WITHOUT_DATA else {"data": value}
        elif isinstance(value, dict) and value.get("data") is None and value.get("model") is None:
            value = {**value, "data": "digits"}
        return super().written_out(value)

    @property
    def spec(self) -> dict[str, Any]:
        """What testbed.tasks takes: all that was said, with the model's options beside the rest."""
        said = {key: value for key, value in self.model_dump(mode="json", exclude_none=True).items() if key != "model"}
        return said if self.model is None else {"model": self.model.name, **self.model.options, **said}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        mapping = handler.resolve_ref_schema(handler(schema))
        name = {"anyOf": [{"enum": [*DATA, *WITHOUT_DATA]}, {"type": "string"}]}
        return {"description": mapping.pop("description", ""), "anyOf": [name, mapping]}
