"""Emulated compute needs a model's size and start, not its data."""

import pytest
import torch

from testbed.errors import ScenarioError
from testbed.tasks import datasets
from testbed.tasks.base import make
from testbed.tasks.datasets import ImageSet, TextSet
from testbed.tasks.no_data import BareTask
from testbed.tasks.spec import resolve


def test_the_same_layout_and_start_as_with_data():
    real = make("digits", rank=1, size=4, seed=3)
    bare = BareTask(resolve("digits"), rank=1, seed=3)
    assert bare.layout == real.layout
    assert torch.equal(bare.initial(), real.initial())


def test_a_resnet_without_cifar(tmp_path, monkeypatch):
    monkeypatch.setenv("TESTBED_DATA", str(tmp_path))
    bare = BareTask(resolve({"model": "resnet20", "data": "cifar10"}), rank=0, seed=1)
    assert bare.layout.numel == 272_474


def test_no_gradient():
    bare = BareTask(resolve("digits"), rank=0, seed=1)
    bare.bind(bare.initial())
    with pytest.raises(ScenarioError, match="no gradient"):
        bare.gradient(0, bare.layout.zeros())


@pytest.mark.parametrize("dataset", datasets.ALL.values(), ids=list(datasets.ALL))
def test_every_data_set_says_its_size(dataset):
    if isinstance(dataset, ImageSet):
        assert dataset.side > 0
    if isinstance(dataset, TextSet):
        assert dataset.words > 0
