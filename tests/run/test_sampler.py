"""Counters while a cell runs, of real processes."""

import os
import signal
import time

import pyarrow.parquet as parquet
import pytest

from testbed.run.sampler import Sampler


def counters(now: float, sent: int = 0) -> dict:
    return {
        "time": now,
        "links": {"w0>w1": [sent, 1, 0, 0, 0]},
        "ports": {"w0": [1, 2, 3, sent]},
        "box_seconds": {"cpu0": now / 10, "cpu1": 7 + now / 2},
    }


def test_samples_become_a_table(tmp_path):
    sampler = Sampler()
    sampler.take(counters(1.0), [os.getpid()], ["w0"], training=True)
    time.sleep(0.05)  # the kernel counts processor time in hundredths of a second
    sampler.take(counters(3.0, sent=500), [os.getpid()], ["w0"], training=True)
    sampler.write(tmp_path / "counters.parquet")
    rows = parquet.read_table(tmp_path / "counters.parquet").to_pylist()
    found = {(row["time_s"], row["kind"], row["name"], row["counter"]): row["value"] for row in rows}
    assert found[3.0, "link", "w0>w1", "bytes"] == 500
    assert found[3.0, "port", "w0", "tx_bytes"] == 500
    assert found[3.0, "host", "box", "share"] == 0.5
    assert 0 <= sampler.idle[0] <= 1
    assert 0 < found[1.0, "worker", "w0", "memory_own"] <= found[1.0, "worker", "w0", "memory"]
    assert found[1.0, "worker", "w0", "cpu_seconds"] > 0
    assert (1.0, "worker", "w0", "retransmits") not in found  # it is in no network of its own


def test_only_training_is_judged():
    sampler = Sampler()
    for number, training in enumerate((False, True, True, True, False, False)):
        sampler.take(counters(float(number)), [], [], training=training)
        time.sleep(0.03)
    assert len(sampler.box_share) == len(sampler.idle) == 2
    assert sum(row[1:4] == ("host", "box", "share") for row in sampler.rows) == 5


def test_the_busiest_processor_decides_in_each_sample():
    sampler = Sampler()
    for now, seconds in enumerate(({"cpu0": 9.0, "cpu1": 5.0}, {"cpu0": 9.1, "cpu1": 5.9}, {"cpu0": 9.5, "cpu2": 90})):
        sampler.take({**counters(float(now)), "box_seconds": seconds}, [], [], training=True)
        time.sleep(0.03)
    assert sampler.box_share == pytest.approx([0.9, 0.4])  # one that was not there before has no share


def test_memory_of_ones_own_is_not_what_was_inherited():
    inherited = b"x" * 50_000_000
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        own = b"y" * 20_000_000
        os.write(writer, b"!")
        signal.pause()
        os._exit(len(own))
    os.read(reader, 1)
    try:
        sampler = Sampler()
        sampler.take(counters(1.0), [child], ["w0"], training=True)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    found = {row[3]: row[4] for row in sampler.rows}
    assert found["memory"] > 70_000_000
    assert 20_000_000 <= found["memory_own"] < 50_000_000
    assert len(inherited) == 50_000_000


def test_workers_take_turns_at_the_expensive_question():
    sampler = Sampler()
    for number in range(4):
        sampler.take(counters(float(number)), [os.getpid(), os.getpid()], ["w0", "w1"], training=True)
    assert sorted(row[2] for row in sampler.rows if row[3] == "memory_own") == ["w0", "w0", "w1", "w1"]


def test_a_worker_that_has_ended_leaves_no_rows():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    sampler = Sampler()
    sampler.take(counters(1.0), [child], ["w0"], training=True)
    assert not [row for row in sampler.rows if row[1] == "worker"]


def test_nothing_sampled_is_a_table_too(tmp_path):
    Sampler().write(tmp_path / "counters.parquet")
    assert parquet.read_table(tmp_path / "counters.parquet").num_rows == 0


def test_in_slow_motion_a_processor_has_no_more_seconds_than_the_scenario():
    sampler = Sampler(slow_motion=4.0)
    for now in (1.0, 3.0):  # eight real seconds: the network's time is the scenario's, its processor's is real
        sampler.take({**counters(now), "box_seconds": {"box": 2 * now}}, [os.getpid()], ["w0"], training=True)
        time.sleep(0.03)
    assert sampler.box_share == [0.5]
    cpu = [value for *_, counter, value in sampler.rows if counter == "cpu_seconds"]
    assert 0 < cpu[-1] <= time.process_time() / 4


def test_whose_doing_it_is_that_processors_are_busy():
    sampler = Sampler(slow_motion=2.0)
    for now in (1.0, 2.0, 3.0):
        sampler.take({**counters(now), "box_seconds": {"box": 0.0}}, [os.getpid()], ["w0"], training=True)
        end = time.process_time() + 0.2
        while time.process_time() < end:
            pass
    others = Sampler()
    for now in (1.0, 2.0):
        others.take({**counters(now), "box_seconds": {"box": 0.0}}, [], [], training=True)
        end = time.process_time() + 0.2
        while time.process_time() < end:
            pass
    assert 0 < sampler.own_share[-1] <= 1
    assert others.own_share == [0.0]
