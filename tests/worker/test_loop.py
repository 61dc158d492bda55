"""Whole trainings over loopback: right, repeatable, measured."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as parquet
import pytest

from testbed import methods
from testbed.errors import ScenarioError
from testbed.methods.allreduce import AllReduce
from testbed.methods.choco import Choco
from testbed.methods.dpsgd import DPSGD
from testbed.results.exchanges import exchange
from testbed.worker.job import Compute, Training
from testbed.worker.local import train_local
from testbed.worker.loop import run_job
from testbed.worker.memory import run_in_memory
from testbed.worker.result import JobResult
from testbed.worker.trace import KINDS

from .workers import bowl, make_job, ring

TRAINING = Training(steps=12, lr=0.1, momentum=0.9, weight_decay=1e-3, eval_every=4)


@pytest.mark.parametrize(
    "spec", ["dpsgd", {"choco": {"compressor": "sign", "gamma": 0.4}}, "dcd", "powergossip", "ring"]
)
def test_processes_and_threads_agree_to_the_bit(spec):
    method = methods.make(spec)
    forked = train_local(4, method, bowl, ring(4), TRAINING)
    threads = run_in_memory(4, method, bowl, ring(4), TRAINING)
    for a, b in zip(forked, threads, strict=True):
        assert np.array_equal(a.x, b.x)
        assert a.bytes_sent == b.bytes_sent
        assert [(row.step, row.metric, row.value) for row in a.metrics] == [
            (row.step, row.metric, row.value) for row in b.metrics
        ]


def test_twice_the_same():
    first, second = (train_local(3, AllReduce(), bowl, ring(3), TRAINING) for _ in range(2))
    assert all(np.array_equal(a.x, b.x) for a, b in zip(first, second, strict=True))
    other = train_local(3, AllReduce(), bowl, ring(3), TRAINING, seed=2)
    assert not np.array_equal(first[0].x, other[0].x)


def test_timing_and_threads_do_not_touch_the_result():
    plain = train_local(3, DPSGD(), bowl, ring(3), TRAINING)
    slow = replace(TRAINING, compute=Compute("step_time", 0.005))
    padded = train_local(3, DPSGD(), bowl, ring(3), slow, watch_every=1)
    assert all(np.array_equal(a.x, b.x) for a, b in zip(plain, padded, strict=True))
    assert all(result.seconds >= 12 * 0.005 for result in padded)


def test_arrivals_are_seen_in_the_steps_that_are_watched():
    slow = replace(TRAINING, compute=Compute("step_time", 0.005))
    results = train_local(3, DPSGD(), bowl, ring(3), slow, watch_every=5)
    for result in results:
        arrived = result.spans[result.spans["kind"] == KINDS.index("receive")]
        assert sorted(set(arrived["step"])) == [4, 9]
        assert (arrived["end_ns"] >= arrived["start_ns"]).all()
    found = exchange(results, 1, pipelined=False)
    assert found is not None
    assert 0 < found.seconds < 1
    assert 0 <= found.spread < 1


def test_a_result_warns_of_how_its_worker_is_not_isolated(tmp_path):
    job = make_job(1, tmp_path, training=TRAINING, gossip=(((1.0,),),))
    result = run_job(job, method=DPSGD(), task=bowl(0, 1, 1), shortcomings=["/sys shows the host's interfaces"])
    assert result.warnings == ["/sys shows the host's interfaces"]
    assert JobResult.read(tmp_path, 0).warnings == result.warnings


def test_metrics_are_complete_and_right():
    results = train_local(4, DPSGD(), bowl, ring(4), TRAINING)
    for rank, result in enumerate(results):
        own = [row for row in result.metrics if row.worker == rank]
        assert [row.step for row in own if row.metric == "train_loss"] == list(range(1, 13))
        assert [row.step for row in own if row.metric == "test_loss"] == [0, 4, 8, 12]
        assert result.last("test_loss") == bowl(rank, 4, 1).evaluate(_tensor(result.x))["loss"]
        times = [row.time_s for row in own if row.metric == "train_loss"]
        assert times == sorted(times)
        assert times[-1] <= result.seconds
        sent = [row.bytes_sent for row in own if row.metric == "train_loss"]
        assert sent == [step * 2 * 140 for step in range(1, 13)]
    average = {(row.step, row.metric): row for result in results for row in result.metrics if row.worker == -1}
    assert {step for step, _ in average} == {0, 4, 8, 12}
    x = np.stack([result.x for result in results]).astype(np.float64)
    consensus = np.sqrt(np.square(x - x.mean(axis=0)).sum(axis=1).mean())
    assert average[12, "consensus"].value == pytest.approx(consensus)
    assert average[0, "consensus"].value == 0
    judge = bowl(12 // 4, 4, 1)  # its task, because the averages are shared out
    assert average[12, "test_loss"].value == pytest.approx(judge.evaluate(_tensor(x.mean(axis=0)))["loss"], rel=1e-5)
    assert average[12, "consensus"].bytes_sent == 4 * 12 * 2 * 140


def test_only_the_average_is_judged_on_request():
    results = train_local(2, DPSGD(), bowl, ring(2), replace(TRAINING, eval_models="average"))
    judged = {row.worker for result in results for row in result.metrics if row.metric == "test_loss"}
    assert judged == {-1}


def test_spans_are_well_formed():
    training = replace(TRAINING, compute=Compute("step_time", 0.004))
    results = train_local(4, Choco(), bowl, ring(4), training)
    for result in results:
        spans = result.spans
        assert (spans["end_ns"] >= spans["start_ns"]).all()
        kinds = {KINDS[code] for code in spans["kind"]}
        assert kinds >= {"compute", "compress", "send", "wait", "eval"}
        for step in range(12):
            assert (spans["kind"][spans["step"] == step] == KINDS.index("compute")).sum() == 1
        own = spans[spans["kind"] != KINDS.index("send")]  # a send goes on beside what the worker does
        own = np.sort(own, order="start_ns")
        assert (own["start_ns"][1:] >= own["end_ns"][:-1]).all(), "a worker does one thing at a time"
        busy = (own["end_ns"] - own["start_ns"])[own["kind"] != KINDS.index("eval")].sum() / 1e9
        assert 12 * 0.004 <= busy <= result.seconds


def test_files_of_a_run(tmp_path):
    results = train_local(3, DPSGD(), bowl, ring(3), TRAINING, directory=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "metrics.parquet",
        "trace.parquet",
        "worker.0.parcel",
        "worker.1.parcel",
        "worker.2.parcel",
    ]
    trace = parquet.read_table(tmp_path / "trace.parquet").to_pandas()
    assert len(trace) == sum(len(result.spans) for result in results)
    assert sorted(trace.worker.unique()) == [0, 1, 2]
    metrics = parquet.read_table(tmp_path / "metrics.parquet").to_pandas()
    assert metrics.query("metric == 'train_loss'").groupby("worker").size().tolist() == [12, 12, 12]
    again = JobResult.read(tmp_path, 1)
    assert np.array_equal(again.x, results[1].x)
    assert np.array_equal(again.spans, results[1].spans)
    assert (again.metrics, again.bytes_sent, again.seconds) == (
        results[1].metrics,
        results[1].bytes_sent,
        results[1].seconds,
    )


def test_wrong_names_are_refused_before_anything_starts():
    with pytest.raises(ScenarioError, match="dspgd"):
        train_local(2, "dspgd", bowl, ring(2), TRAINING, started=lambda pids: pytest.fail("workers were started"))
    with pytest.raises(ScenarioError, match="dgits"):
        train_local(2, "dpsgd", "dgits", ring(2), TRAINING, started=lambda pids: pytest.fail("workers were started"))


def _tensor(array):
    import torch

    return torch.from_numpy(array.astype(np.float32))
