"""The training task: model, data, and how the data is divided. testbed.tasks makes it and knows the names."""

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

    iid: Nothing | None = Field(
        default=None, description="At random: all workers see the same distribution, as in one data centre."
    )
    dirichlet: Number | None = Field(
        default=None,
        gt=0,
        description="Shares of each class are drawn from a Dirichlet distribution: 0.1 very uneven, 1 uneven, 100 "
        "nearly even.",
    )
    shards: Positive | None = Field(
        default=None,
        description="Data is sorted by class and cut; each worker gets this many pieces, so about as many classes: 1 "
        "is the hardest case for gossip.",
    )
    contiguous: Nothing | None = Field(default=None, description="Text in one piece for each worker.")
    by_source: Nothing | None = Field(
        default=None,
        alias="by-source",
        description="Text: by document, as it came from its authors: workers differ as real sites do.",
    )


class ModelChoice(Named):
    """A model: its name, or {name: {options}}, e.g. {mlp: {hidden: [128]}}."""

    what: ClassVar[str] = "model"
    known: ClassVar[tuple[str, ...]] = ("logistic", "mlp", "cnn", "resnet20", "lstm", "gpt", *WITHOUT_DATA)


class Task(Model):
    """Model and data: a name such as digits, or a mapping."""

    data: Name | None = Field(
        default=None,
        description="Data set: digits, fashion-mnist, cifar10 or text. digits comes along and trains in seconds; "
        "`testbed data fetch` gets others. Default: the model's usual one, or digits.",
        json_schema_extra={"anyOf": [{"enum": list(DATA)}, {"type": "string"}]},
    )
    model: ModelChoice | None = Field(
        default=None,
        description="Model, e.g. resnet20 or {mlp: {hidden: [128]}}. Larger ones make messages longer, and "
        "compression worth more. Default: mlp for digits, cnn for fashion-mnist, resnet20 for cifar10, gpt for text.",
    )
    batch: Positive | None = Field(
        default=None,
        description="Examples per worker and step. More take longer to compute, so the network matters less. Default: "
        "32.",
    )
    split: Split | None = Field(
        default=None,
        description="How data is divided: iid, {dirichlet: 0.5}, {shards: 2}, by-source or contiguous. Uneven data is "
        "where gossip methods differ most. Default: iid for images, contiguous for text.",
    )
    reshuffle: bool | None = Field(
        default=None,
        description="true: divide the data anew in each epoch, as in one data centre; false: it stays where it is, as "
        "at different sites. Default: false.",
    )
    test_samples: Positive | None = Field(
        default=None,
        description="Evaluate on this many held-out samples only. Set it where evaluation takes long. Default: all.",
    )
    augment: bool | None = Field(
        default=None,
        description="Images: random crops and flips, against overfitting in long training. Default: true for cifar10, "
        "false for the others.",
    )
    tokens: Literal["words", "bytes"] | None = Field(
        default=None,
        description="Text: what a token is. Words make a large embedding, so long messages. Default: bytes for gpt, "
        "words for lstm.",
    )
    bptt: Positive | None = Field(
        default=None,
        description="Text: tokens per window, the context that the model sees. Default: 64 for gpt, 30 for lstm.",
    )
    carry: bool | None = Field(
        default=None,
        description="Text: true lets a recurrent model (lstm) go on from the last window's state, as is usual for "
        "word models. Default: false.",
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
        """Return what testbed.tasks takes: all settings, with the model's options beside the rest."""
        said = {key: value for key, value in self.model_dump(mode="json", exclude_none=True).items() if key != "model"}
        return said if self.model is None else {"model": self.model.name, **self.model.options, **said}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        mapping = handler.resolve_ref_schema(handler(schema))
        name = {"anyOf": [{"enum": [*DATA, *WITHOUT_DATA]}, {"type": "string"}]}
        return {"description": mapping.pop("description", ""), "anyOf": [name, mapping]}
