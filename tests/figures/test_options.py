"""What options say, and the figures over them, from runs whose methods were changed by hand."""

import json

import numpy as np
import pytest
from recorded_runs import FAULTS, SWEEP, copy

from testbed.analysis import (
    bits_sweep,
    consensus_error,
    difference_spectrum,
    gamma_sensitivity,
    hyperparameters,
    options,
    reading,
    timeline,
)
from testbed.results.run import open_run
from testbed.tasks.data_options import Feeding
from testbed.tasks.datasets import DIGITS
from testbed.tasks.spec import make
from testbed.tasks.store import load

WIDTHS = ("8bit", "4bit")  # by repeat


@pytest.mark.parametrize(
    ("given", "name", "bits"),
    [({"compressor": "sign"}, "sign", 1.0), ({"compressor": {"quantize": "4bit"}}, "quantize", 4.0),
     ({"compressor": {"qsgd": {"bits": 2}}}, "qsgd", 2.0), ({"compressor": "quantize"}, "quantize", 8.0),
     ({"compressor": {"topk": {"fraction": 0.01}}}, "topk", None), ({}, None, None)],
)  # fmt: skip
def test_compressors_and_their_bits(given, name, bits):
    assert options.compressor(given) == name
    assert options.bits(given) == bits


def test_gamma_is_given_or_chosen():
    assert options.gamma({"gamma": 0.4}, {"gamma": 0.1}) == 0.4
    assert options.gamma({"gamma": "auto"}, {"gamma": 0.1}) == 0.1
    assert options.gamma({}, {}) is None


def with_options(path, given):
    """The same cells, with other options of theirs: one by repeat of each method."""
    file = path / "cells.json"
    cells = json.loads(file.read_text())
    for cell in cells:
        cell["options"] = given(cell)
    file.write_text(json.dumps(cells))
    return open_run(path)


def test_figures_over_bits_and_gamma(tmp_path):
    bits = with_options(copy(FAULTS, tmp_path / "a"), lambda cell: {"compressor": {"quantize": WIDTHS[cell["repeat"]]}})
    axes = bits_sweep.draw(bits).axes[0]
    assert [text.get_text() for text in axes.texts if text.get_text()] == ["dpsgd", "choco"]
    assert {text.get_text() for text in axes.get_xticklabels()} == {"8", "4"}
    gammas = with_options(copy(FAULTS, tmp_path / "b"), lambda cell: {"gamma": 0.1 * (1 + cell["repeat"])})
    axes = gamma_sensitivity.draw(gammas).axes[0]
    line = next(line for line in axes.get_lines() if len(line.get_xdata()) == 2 and line.get_marker() == "D")
    accuracies = gammas.results[gammas.results["family"] == "choco"]["test_accuracy"]
    assert line.get_ydata().tolist() == pytest.approx(accuracies.tolist())
    with pytest.raises(reading.LackingError, match="several γ"):
        gamma_sensitivity.draw(open_run(SWEEP))


def test_the_spectrum_of_a_rank_one_difference_has_one_value(tmp_path):
    path = copy(SWEEP, tmp_path)
    task = make(open_run(path).scenario.task.spec, rank=0, size=4, seed=0)
    slot = next(slot for slot in task.layout.slots if len(slot.shape) == 2)
    model = np.zeros(task.layout.numel, dtype=np.float32)
    folder = path / "cells" / "v0-dpsgd-r0" / "snapshots"
    folder.mkdir()
    for rank in (0, 1):
        model[slot.start : slot.stop] = rank * np.outer(np.arange(slot.shape[0]), np.ones(slot.shape[1])).ravel()
        header = np.array([1, 2], dtype=np.int64).tobytes()
        (folder / f"00000020.{rank}").write_bytes(header + model.tobytes())
    run = open_run(path)
    made = difference_spectrum.draw(run)
    (line,) = [line for line in made.axes[0].get_lines() if len(line.get_xdata())]
    values = line.get_ydata()
    assert values[0] == 1.0
    assert np.all(values[1:] < 1e-12)
    with pytest.raises(reading.LackingError, match="keeps no models"):
        difference_spectrum.draw(run, cell="v0-allreduce-r0")


def test_gossip_alone_is_judged_by_its_distance_from_the_true_mean(tmp_path):
    path = copy(SWEEP, tmp_path)
    file = path / "scenario.yaml"
    text = file.read_text()
    assert "model: mlp" in text
    file.write_text(text.replace("model: mlp", "model: {consensus: {shape: [10, 10]}}"))
    axes = consensus_error.draw(open_run(path), along="megabytes").axes[0]
    assert axes.get_yscale() == "log"
    assert axes.get_title(loc="left") == "squared distance from the true mean"
    with pytest.raises(reading.LackingError, match="not epochs"):
        consensus_error.draw(open_run(path), along="epochs")


def test_hyperparameters_say_where_each_comes_from():
    table = hyperparameters.table(open_run(SWEEP))
    rows = {
        (method, setting, origin): value for method, setting, value, origin in table.itertuples(index=False, name=None)
    }
    assert rows["all", "lr", "scenario"] == "0.1"
    assert rows["all", "network.link.latency", "swept"] == "5ms, 25ms"
    assert rows["dcd quantize 8bit", "compressor", "scenario"] == "quantize:8bit"
    assert ("choco sign", "gamma", "default") not in rows
    assert 0 < float(rows["choco sign", "gamma", "chosen by the method"]) <= 1


def test_an_epoch_is_as_long_as_the_task_makes_it():
    assert Feeding().batch == reading.USUAL_BATCH
    assert reading.TRAINING_SAMPLES["digits"] == len(load(DIGITS).arrays["train_labels"])
    assert reading.steps_per_epoch(open_run(SWEEP)) == 12  # 1437 / (4 × 32), rounded up


def test_a_timeline_is_of_the_steps_asked_for():
    run = open_run(SWEEP)
    made = timeline.draw(run, cell="v0-dpsgd-r0", first_step=3, steps=2)
    texts = {text.get_text() for text in made.axes[0].texts}
    assert texts == {"step 3", "step 4"}
    with pytest.raises(reading.LackingError, match="no spans in steps 900"):
        timeline.draw(run, first_step=900)
