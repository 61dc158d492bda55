"""A method looks the same everywhere."""

from testbed.analysis import style
from testbed.worker.trace import KINDS

RUN = [("allreduce", "allreduce"), ("choco sign", "choco"), ("choco topk", "choco"), ("mine", "my.py:Mine")]


def test_the_first_of_a_family_looks_the_same_in_every_run():
    found = style.looks(RUN)
    assert found["choco sign"].colour == style.FAMILIES["choco"]
    assert found["allreduce"].colour == style.INK
    assert style.looks([("mine", "my.py:Mine")])["mine"] == found["mine"]
    assert style.looks(RUN + RUN) == found


def test_no_two_look_alike():
    many = [(f"{family} {number}", family) for family in style.FAMILIES for number in range(4)]
    found = style.looks(many)
    assert len(set(found.values())) == len(many)
    firsts = [found[f"{family} 0"].colour for family in style.FAMILIES]
    assert len(set(firsts)) == len(firsts)


def test_colours_are_seen_on_white_and_on_black():
    for colour in [*style.FAMILIES.values(), *style.OTHERS, *style.GREYS]:
        if colour != style.INK:  # it follows the page
            assert contrast(colour, "#ffffff") > 2.2
            assert contrast(colour, "#15171a") > 2.9


def contrast(one: str, other: str) -> float:
    """As WCAG defines it."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_rules_of_a_figure_hold_for_it_alone():
    text = style.svg(style.figure(), "fig")
    assert text.startswith('<svg id="fig"')
    assert "#fig *{stroke-linejoin" in text
    assert "<metadata>" not in text


def test_every_kind_of_span_has_a_colour():
    assert set(KINDS) <= set(style.KINDS)
