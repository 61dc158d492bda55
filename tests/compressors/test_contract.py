"""Every compressor keeps what methods rely on, and the check that says so notices those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.cli import cli
from testbed.compressors import make
from testbed.compressors.contract import LAYOUT, PROMISES, lines, unbiased

from .examples import EVERY, MIXED, NAMES

OWN = Path(__file__).parents[2] / "scenarios" / "own_compressor.py"
BROKEN = """
from dataclasses import dataclass
import numpy as np
import torch
from testbed.compressors import Codec, Compressor

class Plain(Codec):
    def __init__(self, layout):
        super().__init__(layout, 4 * layout.numel)
        self.last = torch.zeros(layout.numel)
    def encoded(self, x):
        return x.clone()
    def compress(self, x, step, out=None):
        message = self.encoded(x).view(torch.uint8)
        return message if out is None else out.copy_(message)
    def decompress_into(self, message, dest, weight=1.0):
        dest.add_(message.clone().view(torch.float32), alpha=weight)

class Short(Plain):
    def compress(self, x, step, out=None):
        return super().compress(x, step, out)[:-4]

class Signature(Plain):
    def compress(self, x, step):
        return super().compress(x, step)

class Global(Plain):
    def encoded(self, x):
        return x + 1e-3 * torch.randn_like(x)

class GlobalNumpy(Plain):
    def encoded(self, x):
        return x + np.random.random()

class Remembers(Plain):
    def decompress_into(self, message, dest, weight=1.0):
        super().decompress_into(message, dest, weight)
        dest.add_(self.last, alpha=weight)
    def encoded(self, x):
        self.last = x.clone()
        return x.clone()

class Replaces(Plain):
    def decompress_into(self, message, dest, weight=1.0):
        dest.copy_(message.clone().view(torch.float32)).mul_(weight)

class Ignores(Plain):
    def compress(self, x, step, out=None):
        return super().compress(x, step)

class Aligned(Plain):
    def decompress_into(self, message, dest, weight=1.0):
        dest.add_(message.view(torch.float32), alpha=weight)

class Changes(Plain):
    def encoded(self, x):
        return x.mul_(1.0001).clone()

class Reuses(Plain):
    def encoded(self, x):
        return self.last.copy_(x)

class Forgets(Plain):
    def encoded(self, x):
        self.last = self.last + x
        return self.last.clone()

class Halves(Plain):
    def encoded(self, x):
        return x * 0.5
"""
KIND = """
@dataclass(frozen=True)
class Own(Compressor):
    unbiased = {unbiased}
    def bind(self, layout, seed):
        return {codec}(layout)
"""


@pytest.mark.parametrize("spec", EVERY, ids=NAMES)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_compressors_keep_their_promises(spec, promise):
    promise(make(spec), LAYOUT if promise is unbiased else MIXED)


def test_the_example_keeps_them():
    result = CliRunner().invoke(cli, ["compressors", f"{{{OWN}:EveryNth: {{n: 7}}}}", "--check"])
    assert result.exit_code == 0
    assert "BROKEN" not in result.output
    assert result.output.count("ok  ") == len(PROMISES)
    assert "every-nth(n=7): biased, 0.571 bytes per element" in result.output


@pytest.mark.parametrize(
    ("codec", "words"),
    [
        ("Short", "a message is nbytes of uint8, whatever is sent: torch.uint8"),
        ("Signature", "Signature.compress should take (self, x, step, out)"),
        ("Global", "the same seed, step and x make the same bytes"),
        ("Global", "torch's global generator"),
        ("GlobalNumpy", "numpy's global generator"),
        ("Remembers", "sender and receiver decode different values"),
        ("Replaces", "decompress_into adds weight times what was sent"),
        ("Ignores", "another tensor than `out` is returned"),
        ("Aligned", "at odd places in memory: RuntimeError"),
        ("Changes", "compress changes x"),
        ("Reuses", "the next message overwrites the last"),
        ("Forgets", "after a checkpoint messages differ"),
        ("Halves", "the mean of many messages is what was sent"),
    ],
)
def test_broken_ones_are_told(tmp_path, codec, words):
    file = tmp_path / f"{codec.lower()}.py"
    file.write_text(BROKEN + KIND.format(codec=codec, unbiased=codec == "Halves"))
    result = CliRunner().invoke(cli, ["compressors", f"{file}:Own", "--check"])
    assert result.exit_code == 2
    assert any(line.startswith("BROKEN") and words in line for line in result.output.splitlines()), result.output


def test_the_plain_one_they_derive_from_is_fine(tmp_path):
    file = tmp_path / "plain.py"
    file.write_text(BROKEN + KIND.format(codec="Plain", unbiased=True))
    assert all(kept for kept, _ in lines(make(f"{file}:Own")))
