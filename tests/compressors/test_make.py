"""Compressors from YAML: what is understood, what is refused and with which words, and where they come from."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from click.testing import CliRunner

from testbed import registry
from testbed.cli import cli
from testbed.compressors import Compressor, available, make
from testbed.compressors.half import Bf16, Fp16
from testbed.compressors.identity import Identity
from testbed.compressors.lowrank import LowRank
from testbed.compressors.qsgd import Qsgd
from testbed.compressors.quantize import Quantize
from testbed.compressors.randomk import RandomK
from testbed.compressors.sign import Sign
from testbed.compressors.step import Step
from testbed.compressors.topk import TopK
from testbed.errors import ScenarioError
from testbed.flat import Layout

TOY = '''
"""A user's compressor: every value halved, as in the hand-checked examples."""
from __future__ import annotations
from dataclasses import dataclass
import torch
from testbed.compressors import Codec, Compressor, option
from testbed.compressors.options import positive


@dataclass(frozen=True)
class Shrink(Compressor):
    """C(x) = x / by."""

    short = "by"
    by: float = option(2.0, help="divisor", parse=positive)

    def bind(self, layout, seed):
        return ShrinkCodec(self, layout)


class ShrinkCodec(Codec):
    def __init__(self, options, layout):
        super().__init__(layout, 4 * layout.numel)
        self.by = options.by

    def compress(self, x, step, out=None):
        x, message = self.outgoing(x, out)
        message.view(torch.float32).copy_(x / self.by)
        return message

    def decompress_into(self, message, dest, weight=1.0):
        message, dest = self.incoming(message, dest)
        dest += weight * message.view(torch.float32)


class NotOne:
    pass
'''


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("identity", Identity()),
        ("fp16", Fp16()),
        ("bf16", Bf16()),
        ("sign", Sign()),
        ("quantize", Quantize()),
        ("{quantize: 8bit}", Quantize(bits=8)),
        ("{quantize: 4}", Quantize(bits=4)),
        ("{quantize: 2 bits}", Quantize(bits=2)),
        ("{quantize: {bits: 4, rounding: nearest, bucket: 512}}", Quantize(4, "nearest", 512)),
        ("{quantize: }", Quantize()),
        ("{topk: 1%}", TopK(0.01)),
        ("{topk: {fraction: 0.1, values: fp16}}", TopK(0.1, "fp16")),
        ("{randomk: {fraction: 0.1, unbiased: true}}", RandomK(0.1, unbiased=True)),
        ("{lowrank: 4}", LowRank(4)),
        ("{qsgd: 4bit}", Qsgd(4)),
        ("{qsgd: {bits: 3, scaled: true}}", Qsgd(3, scaled=True)),
        ("{step: 0.05}", Step(0.05)),
        ("{step: 5e-2}", Step(0.05)),  # YAML takes this for a string
        ("{step: {step: 0.05, bits: 16, overflow: clip}}", Step(0.05, 16, "clip")),
    ],
)
def test_what_a_scenario_may_say(text: str, expected: Compressor) -> None:
    assert make(yaml.safe_load(text)) == expected


def test_a_compressor_passes_through() -> None:
    assert make(Sign()) == Sign()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("quantise", "there is no 'quantise'; did you mean quantize?"),
        ("Top-K", "there is no 'Top-K'; did you mean topk?"),
        ("{quantize: {bit: 4}}", "quantize: there is no option 'bit'; did you mean bits?"),
        ("{quantize: 9}", "quantize: bits: 9 is not a whole number from 1 to 8"),
        ("{quantize: 0}", "quantize: bits: 0 is not a whole number from 1 to 8"),
        ("{quantize: true}", "quantize: bits: True is not a whole number from 1 to 8"),
        ("{quantize: 4.5}", "quantize: bits: 4.5 is not a whole number"),
        ("{quantize: 4bytes}", "quantize: bits: '4bytes' is not a whole number"),
        ("{quantize: {bucket: 100}}", "bucket: 100 is not a whole number of at least 8 and a multiple of 8"),
        ("{quantize: {rounding: up}}", "rounding: 'up' is not one of stochastic, nearest"),
        ("{qsgd: 1bit}", "qsgd: bits: '1bit' is not a whole number from 2 to 8"),
        ("{qsgd: {scaled: 1}}", "scaled: 1 is not true or false"),
        ("{topk: 0}", "fraction: 0 is not a share above 0 and up to 1"),
        ("{topk: 150%}", "fraction: '150%' is not a share"),
        ("{topk: many}", "fraction: 'many' is not a share"),
        ("{lowrank: 0}", "rank: 0 is not a whole number of at least 1"),
        ("step", "step: step must be given"),
        ("{step: -1}", "step: -1 is not a number above 0"),
        ("{step: .inf}", "step: inf is not a number above 0"),
        ("{step: {step: 1, bits: 12}}", "bits: 12 is not one of 8, 16, 32"),
        ("{sign: 3}", "sign: takes no single value, got 3"),
        ("{sign: {bits: 1}}", "sign: there is no option 'bits'"),
        ("{sign: , topk: 1%}", "neither a name nor one name with its options"),
        ("[sign]", "neither a name nor one name with its options"),
        ("8", "neither a name nor one name with its options"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        make(yaml.safe_load(text))
    assert words in str(caught.value)
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_python_gets_the_same_checks() -> None:
    with pytest.raises(ScenarioError, match="bits: 9 is not"):
        Quantize(bits=9)


def test_labels_say_what_matters() -> None:
    assert str(Quantize()) == "quantize(bits=8)"
    assert str(Quantize(4, bucket=512)) == "quantize(bits=4, bucket=512)"
    assert str(Sign()) == "sign"


def test_every_file_is_found() -> None:
    assert list(available()) == sorted(
        ["bf16", "fp16", "identity", "lowrank", "qsgd", "quantize", "randomk", "sign", "step", "topk"]
    )


def shrinks(spec: Any, beside: Path | None = None) -> None:
    codec = make(spec, beside).bind(Layout.of([("x", (2,))]), 0)
    dest = torch.ones(2)
    codec.decompress_into(codec.compress(torch.tensor([4.0, 0.0]), 0), dest, weight=0.5)
    assert dest.tolist() == [2.0, 1.0]


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    (tmp_path / "toys").mkdir()
    (tmp_path / "mine_too.py").write_text(TOY)
    (tmp_path / "toys" / "mine.py").write_text(TOY)
    return tmp_path


def test_ones_own_file_next_to_the_scenario(beside: Path) -> None:
    shrinks("toys/mine.py:Shrink", beside)
    shrinks({"toys.mine:Shrink": 2}, beside)
    shrinks({"mine_too:Shrink": {"by": 2}}, beside)
    assert make({"mine_too.py:Shrink": 4}, beside).name == "shrink"
    assert str(make({"mine_too.py:Shrink": 4}, beside)) == "shrink(by=4.0)"


def test_ones_own_module_on_the_path(beside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(beside / "toys"))
    shrinks("mine:Shrink")


def test_an_installed_plug_in(beside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(beside))
    entry = EntryPoint("shrink", "mine_too:Shrink", "testbed.compressors")
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry] if group == "testbed.compressors" else [])
    shrinks("shrink")
    assert "shrink" in available()
    with pytest.raises(ScenarioError, match="did you mean shrink"):
        make("shrunk")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("nowhere.py:Shrink", "there is no file"),
        ("no_such_module:Shrink", "cannot be imported: ModuleNotFoundError"),
        ("mine_too.py:Shrnk", "has no 'Shrnk'; did you mean Shrink?"),
        ("mine_too.py:NotOne", "is no compressor"),
        ("broken.py:Shrink", "cannot be imported: SyntaxError"),
        ({"mine_too.py:Shrink": {"buy": 3}}, "shrink: there is no option 'buy'; did you mean by?"),
        ({"mine_too.py:Shrink": 0}, "by: 0 is not a number above 0"),
    ],
)
def test_ones_own_with_mistakes(spec: Any, words: str, beside: Path) -> None:
    (beside / "broken.py").write_text("def (:\n")
    with pytest.raises(ScenarioError) as caught:
        make(spec, beside)
    assert words in str(caught.value)


def test_command_lists_all_with_sizes() -> None:
    lines = CliRunner().invoke(cli, ["compressors"]).output.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(available())
    (topk,) = [line for line in lines if line.startswith("topk ")]
    assert "fraction=0.01 values=fp32" in topk
    assert "biased" in topk
    assert "0.0806" in topk  # 21 968 of 272 474
    assert "arXiv 1809.07599" in topk


def test_command_tells_about_one() -> None:
    text = CliRunner().invoke(cli, ["compressors", "step"]).output
    assert "Wire:" in text
    assert "step = (required)" in text
    assert isinstance(CliRunner().invoke(cli, ["compressors", "stp"]).exception, ScenarioError)
