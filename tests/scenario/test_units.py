import pickle
import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.scenario.units import UNLIMITED, Duration, Rate, Share, Size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5ms", 0.005),
        ("0.13ms", 0.00013),
        ("30s", 30.0),
        ("2min", 120.0),
        ("1h", 3600.0),
        ("250us", 250e-6),
        ("250µs", 250e-6),
        ("250μs", 250e-6),  # the Greek letter
        ("7ns", 7e-9),
        (" 5 MS ", 0.005),
        ("1e3ms", 1.0),
        (0, 0.0),
        ("0", 0.0),
        (0.0, 0.0),
    ],
)
def test_durations(text, seconds):
    assert Duration.parse(text) == seconds


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("100mbit", 100_000_000),
        ("1.4gbit", 1_400_000_000),
        ("500kbit", 500_000),
        ("10 Mbit/s", 10_000_000),
        ("1000bit", 1000),
        ("34gbit", 34_000_000_000),
    ],
)
def test_rates(text, bits):
    assert Rate.parse(text) == bits
    assert not Rate.parse(text).unlimited


def test_unlimited_is_its_own_rate():
    assert Rate.parse("unlimited") is UNLIMITED
    assert Rate.parse("Unlimited").unlimited
    assert str(UNLIMITED) == "unlimited"


@pytest.mark.parametrize(
    ("text", "size"), [("2gb", 2 * 10**9), ("512mb", 512 * 10**6), ("1.5gib", 3 * 2**29), ("1kib", 1024), ("9b", 9)]
)
def test_sizes(text, size):
    assert Size.parse(text) == size


@pytest.mark.parametrize(("text", "share"), [("0.1%", 0.001), (0.001, 0.001), ("100%", 1.0), (0, 0.0), ("7 %", 0.07)])
def test_shares(text, share):
    assert Share.parse(text) == share


@pytest.mark.parametrize(
    ("kind", "wrong", "words"),
    [
        (Duration, 5, "5 has no unit; units are ns, us, ms, s, min, h, for example 5ms or 30s"),
        (Duration, "5", "'5' has no unit"),
        (Duration, "5m", "could be minutes or milliseconds"),
        (Duration, "5 parsec", "unknown unit 'parsec'"),
        (Duration, "-5ms", "'-5ms' is not a duration"),
        (Duration, "1:30", "'1:30'"),
        (Duration, "fast", "'fast' is not a duration"),
        (Duration, True, "true is not a duration"),
        (Duration, None, "nothing is not a duration"),
        (Duration, [5], "[5] is not a duration"),
        (Duration, "0.1ns", "shorter than a nanosecond"),
        (Duration, "1e30s", "longer than a century"),
        (Duration, float("inf"), "inf is not a duration"),
        (Duration, float("nan"), "nan is not a duration"),
        (Duration, "1e999s", "unknown unit"),
        (Duration, "٣s", "is not a duration"),  # digits, but not ours
        (Rate, 100, "100 has no unit; units are bit, kbit, mbit, gbit"),
        (Rate, "100mbps", "bits or bytes per second? Write bits, for example 100mbit"),
        (Rate, "10MB/s", "bits or bytes per second? Write bits, for example 10mbit"),
        (Rate, "999bit", "from 1kbit to 34gbit"),
        (Rate, "35gbit", "from 1kbit to 34gbit"),
        (Rate, 0, "write unlimited for no limit"),
        (Rate, "0mbit", "write unlimited for no limit"),
        (Size, "2g", "unknown unit 'g'"),
        (Size, 1024, "has no unit"),
        (Size, "0mb", "not a possible size"),
        (Share, 1, "1 is not clear; write 1% or a number between 0 and 1"),
        (Share, 5.0, "write 5.0% or"),
        (Share, "101%", "more than 100%"),
        (Share, -0.1, "is not clear"),
        (Share, "0.5", "has no unit"),
    ],
)
def test_what_is_wrong_is_said(kind, wrong, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        kind.parse(wrong)


@pytest.mark.parametrize(
    "text",
    ["5ms", "0.13ms", "30s", "90s", "2min", "1h", "250us", "7ns", "0s", "1.5s"],
)
def test_durations_print_as_people_write_them(text):
    expected = {"0.13ms": "130us"}.get(text, text)
    assert str(Duration.parse(text)) == expected


@pytest.mark.parametrize("text", ["1.4gbit", "100mbit", "500kbit", "1kbit", "1.234567891gbit"])
def test_rates_print_as_people_write_them(text):
    assert str(Rate.parse(text)) == text


def test_shares_and_sizes_print_as_people_write_them():
    assert [str(Share.parse(text)) for text in ("0.1%", "80%", 0.3, 0)] == ["0.1%", "80%", "30%", "0%"]
    assert [str(Size.parse(text)) for text in ("2gb", "1.5gib", "512mib", "9b")] == ["2gb", "1536mib", "512mib", "9b"]


@given(st.floats(min_value=1e-9, max_value=1e9) | st.just(0.0))
def test_every_duration_survives_its_text(seconds):
    assert Duration.parse(str(Duration(seconds))) == seconds


@given(st.integers(min_value=1000, max_value=34 * 10**9))
def test_every_rate_survives_its_text(bits):
    assert Rate.parse(str(Rate(bits))) == bits


@given(st.integers(min_value=1, max_value=2**62))
def test_every_size_survives_its_text(size):
    assert Size.parse(str(Size(size))) == size


@given(st.floats(min_value=1e-12, max_value=1) | st.just(0.0))
def test_every_share_survives_its_text(share):
    assert Share.parse(str(Share(share))) == share


@given(st.text(max_size=60) | st.integers() | st.floats() | st.binary(max_size=8))
def test_anything_else_is_a_value_error(value):
    for kind in (Duration, Rate, Size, Share):
        with suppress(ValueError):
            assert isinstance(kind.parse(value), kind)


def test_quantities_travel_between_processes():
    for value in (Duration.parse("5ms"), Rate.parse("1.4gbit"), Size.parse("2gb"), Share.parse("0.1%")):
        copy = pickle.loads(pickle.dumps(value))
        assert copy == value
        assert str(copy) == str(value)
