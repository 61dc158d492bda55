"""From a scenario's words to a method, or to an error that says what is wrong and what to do."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from importlib.metadata import EntryPoint

import pytest
from click.testing import CliRunner

from testbed import registry as shared
from testbed.cli import cli
from testbed.compressors import make as compressor
from testbed.errors import ScenarioError
from testbed.methods import available, make
from testbed.methods.choco import Choco
from testbed.methods.dpsgd import DPSGD
from testbed.scenario.training import MethodChoice

NAMES = [
    "allreduce",
    "choco",
    "dcd",
    "ddp",
    "deepsqueeze",
    "dpsgd",
    "ecd",
    "ef_sign",
    "naive",
    "powergossip",
    "ring",
    "sgp",
]


def test_all_methods_are_found():
    assert list(available()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_enough(name):
    method = make(name)
    assert method.name == name
    assert method.form in ("A", "B", "all-reduce")
    assert method.paper


def test_options():
    method = make({"choco": {"compressor": {"quantize": "4bit"}, "gamma": 0.9, "order": "icml", "overlap": False}})
    assert method == Choco(compressor({"quantize": 4}), 0.9, "icml", False)
    assert (method.form, method.overlaps) == ("B", False)
    assert make({"dpsgd": None}) == DPSGD()
    assert make(method) is method
    assert make({"allreduce": {"compressor": None}}) == make("allreduce")
    assert make({"choco": {"gamma": "5e-2"}}).gamma == 0.05  # YAML leaves such a number a string


def test_methods_do_not_change():
    with pytest.raises(FrozenInstanceError):
        make("dpsgd").gamma = 2.0


@pytest.mark.parametrize(
    ("spec", "message", "hint"),
    [
        ("chocco", "there is no 'chocco'; did you mean choco?", "there are allreduce, choco"),
        (
            {"choco": {"gama": 1}},
            "choco: there is no option 'gama'; did you mean gamma?",
            "choco has compressor, gamma",
        ),
        ({"choco": {"gamma": "large"}}, "gamma: 'large' is not a number above 0, or auto", "consensus step"),
        ({"choco": {"gamma": -1}}, "gamma: -1 is not", "consensus step"),
        ({"choco": {"order": "neurips"}}, "order: 'neurips' is not one of iclr, icml", "overlaps"),
        ({"choco": {"compressor": "sing"}}, "there is no 'sing'; did you mean sign?", "there are"),
        ({"dcd": {"compressor": {"quantize": "99bit"}}}, "bits: '99bit' is not", "bits per element"),
        ({"dpsgd": {"overlap": "yes"}}, "overlap: 'yes' is not true or false", "travel"),
        ({"powergossip": {"rank": 0}}, "rank: 0 is not a whole number of at least 1", "correction"),
        ({"powergossip": {"rank": 1.5}}, "rank: 1.5 is not", "correction"),
        ({"ddp": {"hook": "fp8"}}, "hook: 'fp8' is not one of none, fp16, powersgd", "travels"),
        ({"a": 1, "b": 2}, "neither a name nor one name with its options", "write name"),
        ({"choco": 0.4}, "neither a name nor one name with its options", "write name"),
        ("nowhere.py:Mine", "there is no file", None),
        ("json:dumps", "is no method", "derive it from testbed.methods.Method"),
        ("json:dump_all", "json has no 'dump_all'", "it defines no method"),
        ("no_such_module_anywhere:Mine", "cannot be imported: ModuleNotFoundError", None),
    ],
    ids=str,
)
def test_errors(spec, message, hint):
    with pytest.raises(ScenarioError) as caught:
        make(spec)
    assert message in str(caught.value)
    assert hint is None or hint in caught.value.hint


MINE = """
from dataclasses import dataclass
from testbed.methods import Method
from testbed.compressors import option
from testbed.compressors.options import positive

@dataclass(frozen=True)
class Local(Method):
    name = "local"
    paper = "none"
    form = "A"
    rate: float = option(1.0, help="how much", parse=positive)
    def init(self, peer):
        return None
    def step(self, peer, state):
        peer.x.sub_(peer.direction(), alpha=self.rate)
"""


def test_a_method_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "own_method.py").write_text(MINE)
    method = make({"own_method.py:Local": {"rate": 2}}, beside=tmp_path)
    assert (method.name, method.rate) == ("local", 2.0)
    with pytest.raises(ScenarioError, match="did you mean Local"):
        make("own_method.py:Locale", beside=tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert make("own_method:Local").rate == 1.0


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("def step(self, peer, state)", "def step(self, peer)", ":15: Local.step should take (self, peer, state)"),
        ("def step(", "def stop(", ":7: Local does not define step"),
        ("@dataclass(frozen=True)", "", ":8: Local has options and is no dataclass; put @dataclass(frozen=True) above"),
        ('name = "local"', "name = 1 / 0", ":9 cannot be imported: ZeroDivisionError: division by zero"),
        ('name = "local"', "raise SystemExit(0)", ":9 cannot be imported: SystemExit: 0"),
        ("def init(self, peer):", "def init(self, peer:", "SyntaxError: '(' was never closed"),
    ],
)
def test_mistakes_in_ones_own_are_told_with_their_line(tmp_path, before, after, message):
    assert MINE.count(before) == 1
    (tmp_path / "mistaken.py").write_text(MINE.replace(before, after))
    with pytest.raises(ScenarioError) as caught:
        make("mistaken.py:Local", beside=tmp_path)
    assert message in str(caught.value)
    assert "mistaken.py" in str(caught.value)


def test_name_and_paper_may_be_left_out(tmp_path):
    (tmp_path / "nameless.py").write_text(MINE.replace('name = "local"', "").replace('paper = "none"', ""))
    assert make("nameless.py:Local", beside=tmp_path).name == "local"
    result = CliRunner().invoke(cli, ["methods", f"{tmp_path}/nameless.py:Local"])
    assert result.exit_code == 0
    assert "Paper" not in result.output


def test_editors_offer_all_methods():
    assert sorted(MethodChoice.known) == NAMES


def test_a_method_of_an_installed_package(tmp_path, monkeypatch):
    (tmp_path / "mine_installed.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    entry = EntryPoint("local", "mine_installed:Local", "testbed.methods")
    broken = EntryPoint("broken", "mine_installed:Nothing", "testbed.methods")
    monkeypatch.setattr(shared, "entry_points", lambda group: [entry, broken] if group == "testbed.methods" else [])
    assert make({"local": {"rate": 3}}).rate == 3.0
    with pytest.raises(ScenarioError, match="broken: mine_installed:Nothing cannot be loaded"):
        make("broken")


def test_the_command_lists_them_all():
    result = CliRunner().invoke(cli, ["methods"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    lines = result.output.splitlines()
    for name in NAMES:
        assert any(line.strip().startswith(name) for line in lines), name
    (choco,) = (line for line in lines if line.strip().startswith("choco"))
    assert "gamma=auto" in choco
    assert "A (iclr) or B (icml)" in choco


@pytest.mark.parametrize("name", NAMES)
def test_the_command_explains_each(name):
    result = CliRunner().invoke(cli, ["methods", name])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith(f"{name}: ")
    assert lines[-1] == f"Paper: {available()[name].paper}"
    for option in fields(available()[name]):
        (line,) = (line for line in lines if line.startswith(f"{option.name} = "))
        assert len(line.split(": ", 1)[1]) > 10, "says what it is for"


def test_an_explanation_has_the_equations():
    assert "x_i ← x_i + γ (s_i − x̂_i)" in CliRunner().invoke(cli, ["methods", "choco"]).output


def test_an_unknown_method_is_not_explained():
    with pytest.raises(ScenarioError, match="there is no 'chocco'; did you mean choco"):
        CliRunner().invoke(cli, ["methods", "chocco"], catch_exceptions=False)
