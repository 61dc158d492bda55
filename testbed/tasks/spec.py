"""From what a scenario writes under `task:` to a task: names and options checked first, data and model made after.

`resolve` is pure and says what is wrong with a spec before anything starts; `make` builds one worker's task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from testbed.errors import ScenarioError
from testbed.tasks import datasets, store
from testbed.tasks.base import Task
from testbed.tasks.consensus import Consensus, ConsensusTask
from testbed.tasks.data_options import Feeding, image_order, text_order
from testbed.tasks.datasets import ImageSet, unknown
from testbed.tasks.images import ImageTask
from testbed.tasks.models.base import ImageModel, TextModel
from testbed.tasks.models.cnn import Cnn
from testbed.tasks.models.dense import Logistic, Mlp
from testbed.tasks.models.gpt import Gpt
from testbed.tasks.models.lstm import Lstm
from testbed.tasks.models.resnet import ResNet20
from testbed.tasks.options import fill
from testbed.tasks.quadratic import Quadratic, QuadraticTask
from testbed.tasks.text import TextTask

WITHOUT_DATA: dict[str, Any] = {model.name: model for model in (Quadratic, Consensus)}  # they make their own
MODELS: dict[str, Any] = WITHOUT_DATA | {model.name: model for model in (Logistic, Mlp, Cnn, ResNet20, Lstm, Gpt)}
USUAL_MODEL = {"digits": "mlp", "fashion-mnist": "cnn", "cifar10": "resnet20", "text": "gpt"}  # by data set
NAMES = (*WITHOUT_DATA, *USUAL_MODEL)  # what `task:` may name alone


@dataclass(frozen=True)
class TaskSpec:
    """A task, checked: its model, its data set (unless it makes its own) and how that reaches the workers."""

    model: ImageModel | TextModel | Quadratic | Consensus
    data: str | None
    feeding: Feeding

    def spelt_out(self) -> dict[str, Any]:
        """As scenarios write it, with nothing left to defaults."""
        own = {"model": {self.model.name: dict(vars(self.model))}}
        fed = {key: value for key, value in asdict(self.feeding).items() if value is not None}
        return own if self.data is None else {"data": self.data, **own, **fed}


def resolve(spec: Any) -> TaskSpec:
    """Check a spec; ScenarioError says what is wrong and what is allowed."""
    if isinstance(spec, str):
        if spec not in NAMES:
            raise unknown("task", spec, NAMES)
        spec = {"model": spec} if spec in MODELS else {"data": spec}
    if not isinstance(spec, Mapping):
        raise ScenarioError(f"task: a name ({', '.join(NAMES)}) or {{model: …, data: …}}, not {spec!r}")
    given = {key: value for key, value in spec.items() if value is not None}
    if isinstance(named := given.get("model"), Mapping):  # as scenarios write it: {resnet20: {norm: batch}}
        if len(named) != 1 or not isinstance(options := next(iter(named.values())) or {}, Mapping):
            raise ScenarioError(f"task: model: a name or {{name: {{options}}}}, not {dict(named)!r}")
        given = {**given, **options, "model": next(iter(named))}
    kind, data = _kind(given.pop("model", None), given.pop("data", None))
    own = [field.name for field in fields(kind)]
    common = [field.name for field in fields(Feeding)] if data else []
    for key in given:
        if key not in own and key not in common:
            raise unknown(f"key of a task with model {kind.name}", key, ["model", "data", *own, *common])
    model = fill(kind, {key: value for key, value in given.items() if key in own})
    feeding = fill(Feeding, {key: value for key, value in given.items() if key in common})
    if data is not None:
        feeding.check(dataset := datasets.find(data))
        feeding = feeding.settled(dataset, model)
    if feeding.carry and not getattr(model, "recurrent", False):
        raise ScenarioError(f"carry: {kind.name} has no state to carry; lstm has")
    return TaskSpec(model, data, feeding)


def make(spec: Any, *, rank: int, size: int, seed: int, data_dir: Path | None = None) -> Task:
    """One worker's task; MissingError where its data set is not on this machine."""
    resolved = spec if isinstance(spec, TaskSpec) else resolve(spec)
    model, feeding = resolved.model, resolved.feeding
    if isinstance(model, Quadratic):
        return QuadraticTask(model, rank=rank, size=size, seed=seed)
    if isinstance(model, Consensus):
        return ConsensusTask(model, rank=rank, size=size, seed=seed)
    assert resolved.data is not None
    dataset = datasets.find(resolved.data)
    stored = store.load(dataset, data_dir)
    if isinstance(model, ImageModel):
        assert isinstance(dataset, ImageSet)
        return ImageTask(
            model,
            stored,
            image_order(feeding, stored, rank, size, seed),
            rank=rank,
            seed=seed,
            augment=bool(feeding.augment),
            test_samples=feeding.test_samples,
        )
    assert feeding.tokens is not None
    assert feeding.bptt is not None
    return TextTask(
        model,
        stored,
        text_order(feeding, stored, feeding.tokens, feeding.bptt, rank, size, seed),
        rank=rank,
        seed=seed,
        tokens=feeding.tokens,
        length=feeding.bptt,
        carry=feeding.carry,
        test_samples=feeding.test_samples,
    )


def _kind(model: Any, data: Any) -> tuple[Any, str | None]:
    """The class of the model and the name of the data set, each from the other where only one is given."""
    if data is not None:
        datasets.find(data)
        model = model or USUAL_MODEL[data]
    if model is None:
        raise ScenarioError(f"task: needs a model ({', '.join(MODELS)}) or data ({', '.join(datasets.ALL)})")
    if not isinstance(model, str) or model not in MODELS:
        raise unknown("model", str(model), MODELS)
    kind = MODELS[model]
    if model in WITHOUT_DATA:
        if data is not None:
            raise ScenarioError(f"task: {model} makes its own data; leave out `data`")
        return kind, None
    data = data or kind.data
    reads_images, holds_images = issubclass(kind, ImageModel), isinstance(datasets.find(data), ImageSet)
    if reads_images != holds_images:
        read, held = ("images" if images else "text" for images in (reads_images, holds_images))
        raise ScenarioError(f"task: the model {model} reads {read}, the data set {data} holds {held}")
    return kind, data
