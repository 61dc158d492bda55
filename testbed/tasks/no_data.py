"""A model without data: all that `compute: emulated` needs, so that big models' messages can be studied anywhere."""

from __future__ import annotations

from torch import Tensor, nn

from testbed.errors import ScenarioError
from testbed.tasks import datasets
from testbed.tasks.datasets import ImageSet, TextSet
from testbed.tasks.models.base import ImageModel, ImageShape, TextModel, TextShape
from testbed.tasks.module import ModuleTask
from testbed.tasks.spec import TaskSpec

BYTES = 256  # the vocabulary of text in bytes


class BareTask(ModuleTask):
    """Parameters of the true size and start, nothing to learn."""

    def __init__(self, spec: TaskSpec, *, rank: int, seed: int) -> None:
        super().__init__(lambda: build(spec), rank=rank, seed=seed)

    def _loss(self, step: int) -> Tensor:
        raise ScenarioError("emulated compute has no gradient", hint="use compute: real or {step_time: …}")

    def evaluate(self, x: Tensor) -> dict[str, float]:
        return {}


def build(spec: TaskSpec) -> nn.Module:
    """The module for data that need not be here."""
    assert spec.data is not None
    dataset = datasets.find(spec.data)
    if isinstance(spec.model, ImageModel):
        assert isinstance(dataset, ImageSet)
        return spec.model.build(ImageShape(dataset.side, dataset.side, len(dataset.mean), dataset.classes))
    assert isinstance(spec.model, TextModel)
    assert isinstance(dataset, TextSet)
    assert spec.feeding.bptt is not None
    return spec.model.build(TextShape(dataset.words if spec.feeding.tokens == "words" else BYTES, spec.feeding.bptt))
