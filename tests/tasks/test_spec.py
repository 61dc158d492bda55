from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.errors import MissingError, ScenarioError
from testbed.tasks.base import make
from testbed.tasks.models.dense import Mlp
from testbed.tasks.models.lstm import Lstm
from testbed.tasks.models.resnet import ResNet20
from testbed.tasks.quadratic import Quadratic
from testbed.tasks.spec import NAMES, resolve


def test_a_name_is_a_whole_task() -> None:
    models = ["Quadratic", "Consensus", "Mlp", "Cnn", "ResNet20", "Gpt"]
    assert [type(resolve(name).model).__name__ for name in NAMES] == models
    assert [resolve(name).data for name in NAMES] == [None, None, "digits", "fashion-mnist", "cifar10", "text"]


def test_the_scenarios_example() -> None:
    spec = resolve({"model": "resnet20", "data": "cifar10", "batch": 32, "split": {"dirichlet": 0.5}, "norm": "batch"})
    assert spec.model == ResNet20(norm="batch")
    assert (spec.data, spec.feeding.batch, spec.feeding.split) == ("cifar10", 32, {"dirichlet": 0.5})
    assert resolve({"model": {"resnet20": {"norm": "batch"}}}) == resolve({"model": "resnet20", "norm": "batch"})
    assert resolve({"model": {"mlp": None}, "batch": 8}) == resolve({"model": "mlp", "batch": 8})


def test_model_and_data_follow_from_each_other() -> None:
    assert resolve({"model": "lstm", "hidden": 200}).data == "text"
    assert resolve({"data": "digits", "batch": 8}).model == Mlp()
    assert resolve({"model": "mlp", "hidden": 30}).model == Mlp(hidden=(30,))
    assert resolve({"model": "mlp", "hidden": [30, 20], "split": None}).model == Mlp(hidden=(30, 20))
    assert resolve({"model": "lstm", "dropout": 0, "tied": False}).model == Lstm(dropout=0.0, tied=False)
    assert resolve({"model": "quadratic", "shape": [9], "noise": 1}).model == Quadratic(shape=(9,), noise=1.0)


def test_nothing_is_left_to_defaults_where_a_task_is_spelt_out() -> None:
    assert resolve("digits").spelt_out() == {
        "data": "digits",
        "model": {"mlp": {"hidden": (64, 64)}},
        "batch": 32,
        "split": "iid",
        "reshuffle": False,
        "augment": False,
        "carry": False,
    }
    text = resolve({"model": "lstm", "bptt": 12}).spelt_out()
    assert (text["data"], text["tokens"], text["bptt"], text["split"]) == ("text", "words", 12, "contiguous")
    assert "split" not in resolve({"data": "text", "reshuffle": True}).spelt_out()
    assert list(resolve("quadratic").spelt_out()) == ["model"]
    for spec in ("digits", "cifar10", "text", "consensus", {"model": "lstm", "reshuffle": True}):
        whole = resolve(spec)
        assert resolve(whole.spelt_out()) == whole


def test_a_split_without_value_may_be_written_as_a_mapping() -> None:
    assert resolve({"data": "text", "split": {"by-source": {}}}).feeding.split == {"by-source": {}}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("digit", "unknown task 'digit'.*did you mean digits"),
        ("resnet20", "unknown task 'resnet20'; allowed: quadratic, consensus, digits"),
        (7, "task: a name"),
        ({}, "needs a model"),
        ({"model": "resnet2"}, "unknown model 'resnet2'.*did you mean resnet20"),
        ({"model": [1]}, "unknown model"),
        ({"model": {"mlp": {}, "cnn": {}}}, "model: a name or {name: {options}}"),
        ({"model": {"mlp": 3}}, "model: a name or {name: {options}}"),
        ({"data": "cifr10"}, "unknown data set 'cifr10'.*did you mean cifar10"),
        ({"model": "mlp", "bach": 3}, "unknown key of a task with model mlp 'bach'.*did you mean batch"),
        ({"model": "mlp", "norm": "group"}, "unknown key"),
        ({"model": "resnet20", "norm": "layer"}, "unknown norm 'layer'; allowed: group, batch"),
        ({"model": "resnet20", "width": 12}, "multiple of 8"),
        ({"model": "lstm", "data": "cifar10"}, "lstm reads text, the data set cifar10 holds images"),
        ({"model": "cnn", "data": "text"}, "cnn reads images, the data set text holds text"),
        ({"model": "quadratic", "data": "digits"}, "makes its own data"),
        ({"model": "quadratic", "batch": 3}, "unknown key"),
        ({"model": "quadratic", "shape": []}, "shape: sizes"),
        ({"model": "quadratic", "curvature": [1.0]}, "curvature"),
        ({"model": "quadratic", "noise": -1}, "negative"),
        ({"model": "mlp", "hidden": [0]}, "widths must be at least 1"),
        ({"model": "gpt", "width": 30, "heads": 4}, "multiple of heads"),
        ({"model": "lstm", "dropout": 1.0}, "below 1"),
        ({"data": "digits", "batch": 0}, "batch: at least 1"),
        ({"data": "digits", "batch": 1.5}, "batch: a whole number"),
        ({"data": "digits", "batch": "32"}, "batch: a whole number, not '32'"),
        ({"data": "digits", "batch": True}, "batch: a whole number"),
        ({"data": "digits", "reshuffle": 1}, "reshuffle: true or false"),
        ({"data": "digits", "test_samples": -1}, "test_samples: at least 1"),
        ({"data": "digits", "split": "dirichlet"}, "split: {dirichlet: number above 0}"),
        ({"data": "digits", "split": {"dirichlet": 0}}, "split: {dirichlet: number above 0}"),
        ({"data": "digits", "split": {"dirichlet": float("nan")}}, "split: {dirichlet: number above 0}"),
        ({"data": "digits", "split": {"shards": 1.5}}, "split: {shards: whole number}"),
        ({"data": "digits", "split": {"shard": 2}}, "unknown split 'shard'.*did you mean shards"),
        ({"data": "digits", "split": {"iid": 2}}, "iid takes no value"),
        ({"data": "digits", "split": {"shards": 2, "dirichlet": 1}}, "split: one of"),
        ({"data": "digits", "split": "by-source"}, "where each sample is from and digits does not say"),
        ({"data": "digits", "split": "contiguous"}, "order of images means nothing"),
        ({"data": "text", "split": {"dirichlet": 0.5}}, "text has none"),
        ({"data": "digits", "split": {"shards": 2}, "reshuffle": True}, "undoes split: shards"),
        ({"data": "digits", "bptt": 10}, "bptt: only for text"),
        ({"data": "text", "augment": True}, "augment: only for images"),
        ({"model": "gpt", "carry": True}, "gpt has no state to carry"),
        ({"model": "lstm", "carry": True, "split": "iid"}, "carry needs text in order"),
        ({"model": "lstm", "tokens": "letters"}, "unknown tokens 'letters'; allowed: words, bytes"),
    ],
)
def test_what_is_wrong_is_said(spec: Any, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        resolve(spec)


@pytest.mark.parametrize("name", ["fashion-mnist", "cifar10", "text"])
def test_missing_data_say_how_to_get_them(name: str, tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=f"the data set {name} is not on this machine") as caught:
        make(name, rank=0, size=2, seed=1, data_dir=tmp_path)
    assert caught.value.hint == f"testbed data fetch {name}"
