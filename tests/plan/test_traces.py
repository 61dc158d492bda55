"""Files that drive links, as samples."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from testbed.errors import ScenarioError
from testbed.plan.model import TraceFile
from testbed.plan.traces import Sample, parse_csv, parse_mahimahi, read

PACKET = 8 * 1514  # bits on the link


def test_rows_of_a_csv_file_become_numbers_of_a_shape() -> None:
    trace = parse_csv("time,rate,latency,loss\n0s,100mbit,5ms,0%\n1.5s,1mbit,80ms,2%\n", "t.csv")
    assert trace.period is None
    assert trace.samples == (
        Sample(0, {"rate": 100_000_000, "latency": 0.005, "loss": 0.0}),
        Sample(1.5, {"rate": 1_000_000, "latency": 0.08, "loss": 0.02}),
    )
    assert list(trace) == list(trace.samples)


def test_columns_may_be_left_out_and_come_in_any_order() -> None:
    trace = parse_csv("\ufeffLatency , Time\n\n5ms, 0s\n , 1min\n".removeprefix("\ufeff"), "t.csv")
    assert trace.samples == (Sample(0, {"latency": 0.005}), Sample(60, {}))


def test_an_empty_cell_leaves_things_as_they_are() -> None:
    trace = parse_csv("time,rate,latency,loss\n0s,100mbit,,\n1s,,80ms,\n2s,unlimited,,\n", "t.csv")
    assert [sample.numbers for sample in trace] == [{"rate": 100_000_000}, {"latency": 0.08}, {"rate": None}]


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", 1, "no rows"),
        ("time,rate\n", 1, "no rows"),
        ("0s,1mbit\n1s,2mbit\n", 1, "no column called time"),
        ("time,rte\n0s,1mbit\n", 1, "unknown column 'rte'"),
        ("time,rate,rate\n0s,1mbit,1mbit\n", 1, "twice"),
        ("time,rate\n0s,1mbit\n1s\n", 3, "1 cells, but the first line has 2"),
        ("time,rate\n0s,1mbit\n1s,2mbit,3\n", 3, "3 cells"),
        ("time,rate\n0s,1mbit\n\n0s,2mbit\n", 4, "does not come after 0s"),
        ("time,rate\n5s,1mbit\n4s,2mbit\n", 3, "4s does not come after 5s"),
        ("time,rate\n5,1mbit\n", 2, "time: '5' has no unit"),
        ("time,rate\n,1mbit\n", 2, "time: "),
        ("time,rate\n0s,fast\n", 2, "rate: 'fast' is not a rate"),
        ("time,rate\n0s,0\n", 2, "rate: a rate of 0"),
        ("time,latency\n0s,-1ms\n", 2, "latency"),
        ("time,latency\n0s,300s\n", 2, "too long"),
        ("time,loss\n0s,100%\n", 2, "lets nothing pass"),
        ("time,loss\n0s,3\n", 2, "loss"),
    ],
)
def test_what_is_wrong_in_a_csv_file_is_said_with_its_line(text: str, where: int, what: str) -> None:
    with pytest.raises(ScenarioError, match=what) as caught:
        parse_csv(text, "t.csv")
    assert str(caught.value).startswith(f"t.csv:{where}: ")


def test_lines_of_mahimahi_are_packets_per_bin_and_start_over() -> None:
    first, second = range(10, 101, 10), range(110, 201, 30)  # ten packets, then four
    trace = parse_mahimahi("\n".join(map(str, [*first, *second])), "t.up")
    assert trace.period == 0.2
    assert trace.samples == (Sample(0, {"rate": 100 * PACKET}), Sample(0.1, {"rate": 40 * PACKET}))
    times = [(round(sample.at, 6), sample.numbers["rate"]) for sample in islice(trace, 5)]
    assert times == [
        (0, 100 * PACKET),
        (0.1, 40 * PACKET),
        (0.2, 100 * PACKET),
        (0.3, 40 * PACKET),
        (0.4, 100 * PACKET),
    ]


def test_bins_that_do_not_differ_are_one_sample() -> None:
    trace = parse_mahimahi("\n".join(str(ms) for ms in range(1, 1001)), "t.up")  # 12 Mbit/s for a second
    assert trace.samples == (Sample(0, {"rate": 1000 * PACKET}),)
    assert parse_mahimahi("1\n", "t.up").samples == trace.samples  # the same trace, as mahimahi's users write it


def test_while_nothing_leaves_packets_wait_for_the_next_that_does() -> None:
    trace = parse_mahimahi("0\n50\n350\n390\n500\n", "t.up")  # nothing between 100 and 300 ms
    assert [(round(s.at, 3), s.numbers["rate"] // PACKET, round(s.hold, 3)) for s in trace.samples] == [
        (0.0, 20, 0.0),
        (0.1, 20, 0.2),
        (0.2, 20, 0.1),
        (0.3, 20, 0.0),
        (0.4, 10, 0.0),
    ]


def test_an_outage_at_the_end_waits_for_the_beginning() -> None:
    trace = parse_mahimahi("0\n10\n20\n1000\n", "t.up")
    assert [sample.hold for sample in trace.samples][:3] == [0.0, 0.8, 0.7]
    assert trace.samples[-1].hold == 0.0  # the last line is a packet, in the last bin


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", 1, "must not be 0"),
        ("0\n0\n", 2, "must not be 0"),
        ("1\n2\n\n3\n", 3, "not a time"),
        ("1\n2.5\n", 2, "not a time"),
        ("1\n-2\n", 2, "not a time"),
        ("1\n²\n", 2, "not a time"),
        ("1\n" + 5000 * "9" + "\n", 2, "a day at most"),
        ("1\n86400001\n", 2, "a day at most"),
        ("5\n4\n", 2, "4 ms comes after 5 ms"),
    ],
)
def test_what_is_wrong_in_a_mahimahi_file_is_said_with_its_line(text: str, where: int, what: str) -> None:
    with pytest.raises(ScenarioError, match=what) as caught:
        parse_mahimahi(text, "t.up")
    assert str(caught.value).startswith(f"t.up:{where}: ")


@given(some.lists(some.integers(0, 5000), min_size=1).filter(any).map(sorted))
def test_as_many_packets_may_leave_as_the_file_has_lines(times: list[int]) -> None:
    trace = parse_mahimahi("\n".join(map(str, times)), "t.up")
    assert trace.period == times[-1] / 1000
    bits = 0.0
    ends = [*(sample.at for sample in trace.samples[1:]), trace.period]
    for sample, end in zip(trace.samples, ends, strict=True):
        assert sample.numbers["rate"] > 0
        if sample.hold == 0:
            bits += sample.numbers["rate"] * (end - sample.at)
    assert bits == pytest.approx(PACKET * len(times), rel=1e-3)


def test_a_long_outage_is_one_wait() -> None:
    trace = parse_mahimahi("0\n8640000\n", "t.up")  # a tenth of a day
    assert len(trace.samples) == 86_400
    assert trace.samples[1].hold == pytest.approx(8640 - 0.2)


def test_files_are_read_by_their_kind(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbftime,rate\r\n0s,1mbit\r\n")
    (tmp_path / "b").write_text("100\n")
    assert read(TraceFile("csv", str(tmp_path / "a"))).samples == (Sample(0, {"rate": 1_000_000}),)
    assert read(TraceFile("mahimahi", str(tmp_path / "b"))).period == 0.1


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"missing\.csv: No such file"):
        read(TraceFile("csv", str(tmp_path / "missing.csv")))
    (tmp_path / "picture").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(ScenarioError, match="picture: is no text"):
        read(TraceFile("csv", str(tmp_path / "picture")))
