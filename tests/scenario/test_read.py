import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import ScenarioError
from testbed.scenario.read import MOST_BYTES, decode, plain_word, read


def wrong(text):
    with pytest.raises(ScenarioError) as raised:
        read(text, "f.yaml")
    return str(raised.value)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("Off", "Off"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("1e3", 1000.0),
        ("1e-4", 1e-4),
        (".5", 0.5),
        ("-2", -2),
        ("1:30", "1:30"),
        ("010", "010"),
        ("0o10", "0o10"),
        ("0x1f", "0x1f"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("1e999", "1e999"),
        ("9" * 30, "9" * 30),
        ("5ms", "5ms"),
        ("0.1%", "0.1%"),
        (".", "."),
        ("-", "-"),
        ("e5", "e5"),
        ("+", "+"),
    ],
)
def test_words_mean_what_they_look_like(word, value):
    assert plain_word(word) == value
    assert type(plain_word(word)) is type(value)


def test_quoted_words_are_text():
    assert read("a: '5'\nb: \"true\"\nc: !!str 7\nd: ! 8", "f").data == {"a": "5", "b": "true", "c": "7", "d": "8"}


def test_keys_are_text_and_have_lines():
    document = read("on: 1\n2: [x,\n  y]\nnested:\n  deep: {a: 1}\n", "f")
    assert document.data == {"on": 1, "2": ["x", "y"], "nested": {"deep": {"a": 1}}}
    assert document.lines[("on",)] == 1
    assert document.lines[("2", 1)] == 3
    assert document.lines[("nested",)] == 4
    assert document.lines[("nested", "deep", "a")] == 5


def test_anchors_merge_and_own_keys_win():
    document = read("slow: &slow\n  rate: 1\n  loss: 2\nlink: {<<: *slow, rate: 9}\nlist: [*slow]\n", "f")
    assert document.data["link"] == {"rate": 9, "loss": 2}
    assert document.data["list"] == [{"rate": 1, "loss": 2}]
    assert document.lines[("link", "rate")] == 4
    assert document.lines[("link", "loss")] == 3  # where it was written
    assert document.lines[("list", 0)] == 5


def test_several_mappings_merge_in_order():
    assert read("a: &a {x: 1}\nb: &b {x: 2, y: 3}\nc: {<<: [*a, *b]}", "f").data["c"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3: 'a' is given twice, here and in line 1"),
        ("a: {b: 1,\n b: 2}", "f.yaml:2: 'b' is given twice, here and in line 1"),
        ("a:\n\tb: 1", "f.yaml:2: not valid YAML: a tab; indent with spaces"),
        ("a: [1, 2\nb: 3", "f.yaml:2: not valid YAML: a comma or a closing bracket is missing"),
        ("workers:8\nmethods: [a]", "is a space missing after a colon"),
        ("a: 1\n  b: 2", "f.yaml:2: not valid YAML: mapping values"),
        ("a:\n  - b\n c: 1", "f.yaml:3: not valid YAML: the indentation does not fit"),
        ("a: @x", "put the text in quotes"),
        ("a: `x`", "put the text in quotes"),
        ("a: 'x", "f.yaml:1: not valid YAML"),
        ("a: *nope", "f.yaml:1: *nope refers to nothing"),
        ("a: &x [*x]", "f.yaml:1: *x is used inside what it stands for"),
        ("a: &x {b: *x}", "f.yaml:1: *x is used inside"),
        ("? [a]\n: b", "f.yaml:1: a key must be a word"),
        ("{a: 1}: b", "a key must be a word"),
        ("a: 1\n---\nb: 2", "f.yaml:2: a second document begins here"),
        ("a: !!python/object/apply:os.system [ls]", "f.yaml:1: the tag !!python/object/apply:os.system is not allowed"),
        ("a: !!int 5", "the tag !!int is not allowed"),
        ("a: !mine {b: 1}", "the tag !mine is not allowed"),
        ("a: {<<: 5}", "<< merges a mapping"),
        ("a: {<<: [[]]}", "<< merges a mapping"),
        ("a: 1\nb: \x00", "f.yaml:2: character U+0000 is not allowed"),
        ('a: "\\UFFFFFFFF"', "f.yaml: not valid YAML"),
        ('a: "\\ud800"', "f.yaml:1: half a character"),
        ("%YAML 9.9\n---\na: 1", "not valid YAML"),
        ("[" * 100_000, "f.yaml:1: nested more than 40 levels deep"),
        ("{a: " * 5_000, "f.yaml:1: nested more than 40 levels deep"),
        ("- " * 5_000, "nested more than 40 levels deep"),
        ("- 1\n" * 30_000, "more than 20000 values"),
        ("#" * (MOST_BYTES + 1), "larger than 1000 kB"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text, words):
    assert words in wrong(text)


def test_aliases_that_explode_are_refused():
    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert "with aliases, more than 20000 values" in wrong("\n".join(["a0: &a0 [x]", *levels]))


def test_merges_that_explode_are_refused():
    levels = [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}" for i in range(1, 12)]
    assert "with aliases, more than 20000 values" in wrong("\n".join(["a0: &a0 {x: 1}", *levels]))


def test_long_chains_of_merges_are_refused():
    levels = [f"a{i}: &a{i} {{<<: *a{i - 1}}}" for i in range(1, 3000)]
    assert "levels" in wrong("\n".join(["a0: &a0 {x: 1}", *levels]))


@pytest.mark.parametrize(("content", "line"), [(b"a: \xff", 1), (b"a: 1\nb: 2\nc: caf\xe9\n", 3)])
def test_other_encodings_are_named_with_their_line(content, line):
    with pytest.raises(ScenarioError, match=f"f.yaml:{line}: not UTF-8"):
        decode(content, "f.yaml")


def test_a_byte_order_mark_is_no_character():
    assert read(decode(b"\xef\xbb\xbfa: 1", "f"), "f").data == {"a": 1}


def told(call):
    """What a ScenarioError says; nothing else may be raised."""
    try:
        call()
    except ScenarioError as error:
        return str(error)
    return "f"


@given(st.text(alphabet=st.sampled_from(list("ab:{}[]-?&*!|>'\"%@`#,\n\t <~\\01.e+\x00\x85\ud800é")), max_size=60))
def test_no_text_escapes_the_reader(text):
    assert told(lambda: read(text, "f")).startswith("f")


@given(st.binary(max_size=100))
def test_no_bytes_escape_the_reader(content):
    assert told(lambda: read(decode(content, "f"), "f")).startswith("f")
