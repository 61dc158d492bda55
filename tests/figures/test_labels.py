"""Names at line ends do not overlap; legends fit."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from testbed.analysis import style
from testbed.analysis.labels import BETWEEN, HANDLE, LETTER, End, at_ends, columns, spread


@given(st.lists(st.floats(0, 200), min_size=1, max_size=12))
def test_names_beside_each_other_are_moved_apart_and_stay_inside(wanted):
    got = spread(wanted, [10.0] * len(wanted), [(0.0, 50.0)] * len(wanted), 0.0, 200.0)
    for one, other in itertools.combinations(got, 2):
        assert abs(one - other) > 9.9
    assert all(5.0 <= place <= 195.0 for place in got)


def test_names_that_have_room_stay():
    spans = [(0.0, 20.0), (30.0, 50.0), (0.0, 20.0)]
    assert spread([50.0, 50.0, 80.0], [10.0] * 3, spans, 0.0, 100.0) == [50.0, 50.0, 80.0]


def test_names_in_a_figure_do_not_overlap():
    made = style.figure()
    axes = style.bare(made.subplots())
    axes.plot([0, 1], [0, 1])
    at_ends(made, [(axes, [End(1.0, 0.5 + 0.001 * number, f"method {number}", style.INK) for number in range(6)])])
    made.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts if text.get_text()]
    assert len(boxes) == 6
    for one, other in itertools.combinations(boxes, 2):
        assert one.y1 <= other.y0 + 0.5 or other.y1 <= one.y0 + 0.5
    assert all(box.x1 <= made.bbox.x1 for box in boxes)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=12))
def test_a_legend_has_as_many_columns_as_fit(lengths):
    names = ["x" * length for length in lengths]
    one = max(lengths) * LETTER + HANDLE + BETWEEN
    assert columns(names, 10_000.0) == len(names)
    assert columns(names, one) == 1 or len(names) == 1 or columns(names, one) * (HANDLE + BETWEEN) <= one
