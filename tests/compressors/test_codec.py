"""What holds for every codec: accumulation, determinism, both engines alike, any alignment, no meddling."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest
import torch

from testbed.compressors import arrays, make
from testbed.flat import Layout

from .examples import EVERY, MIXED, NAMES, decoded, gaussian

every = pytest.mark.parametrize("spec", EVERY, ids=NAMES)
RANDOM = [name for name in NAMES if name.startswith(("quantize", "step", "qsgd", "randomk")) and "nearest" not in name]
drawn = pytest.mark.parametrize("spec", [EVERY[NAMES.index(name)] for name in RANDOM], ids=RANDOM)


@drawn
def test_noise_differs_by_step_and_worker(spec: object) -> None:
    x = gaussian(MIXED)
    codec = make(spec).bind(MIXED, 1)
    now = codec.compress(x, 4)
    assert not torch.equal(now, codec.compress(x, 5))
    assert not torch.equal(now, make(spec).bind(MIXED, 2).compress(x, 4))
    assert torch.equal(now, codec.compress(x, 4))  # steps can be repeated: nothing was consumed


@pytest.mark.parametrize("threads", [1, 2])
def test_same_bytes_in_another_process(threads: int) -> None:
    """Only integer and IEEE operations decide the bytes, so processes and thread counts do not. (Matrix products do
    depend on the number of threads; workers have one.)"""
    specs = [spec for spec, name in zip(EVERY, NAMES, strict=True) if threads == 1 or "lowrank" not in name]
    program = f"""
import torch
from tests.compressors.test_codec import digest
torch.set_num_threads({threads})
for spec in {specs}:
    print(digest(spec))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert run.stdout.split() == [digest(spec) for spec in specs]


def digest(spec: object) -> str:
    return hashlib.sha256(bytes(make(spec).bind(MIXED, 1).compress(gaussian(MIXED), 6).tolist())).hexdigest()


@every
@pytest.mark.parametrize("kind", ["gaussian", "ties", "awkward"])
def test_torch_engine_makes_the_same_bytes_and_values(spec: object, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = gaussian(MIXED)
    if kind == "ties":
        x = (x * 2).round() / 2
    elif kind == "awkward":
        x[: MIXED.slots[0].stop] *= 1e38 / 4
        x[MIXED.slots[5].start : MIXED.slots[5].stop] *= 1e-42
        x[-5:] = 0
    sent, got = {}, {}
    for fast in (True, False):
        monkeypatch.setattr(arrays, "FAST", fast)
        codec = make(spec).bind(MIXED, 1)
        sent[fast] = codec.compress(x, 2)
        got[fast] = gaussian(MIXED, 8)
        codec.decompress_into(sent[fast], got[fast], 0.4)
    assert torch.equal(sent[True], sent[False])
    assert torch.equal(got[True], got[False])


@every
@pytest.mark.parametrize("offset", [1, 2, 3])
def test_messages_may_start_anywhere(spec: object, offset: int) -> None:
    """A method may put two messages into one buffer."""
    codec = make(spec).bind(MIXED, 1)
    x = gaussian(MIXED)
    buffer = torch.zeros(codec.nbytes + 8, dtype=torch.uint8)
    part = buffer[offset : offset + codec.nbytes]
    assert codec.compress(x, 0, out=part).data_ptr() == part.data_ptr()
    aligned = make(spec).bind(MIXED, 1).compress(x, 0)
    assert torch.equal(part, aligned)
    assert not buffer[:offset].any()
    assert not buffer[offset + codec.nbytes :].any()
    assert torch.equal(decoded(codec, part), decoded(codec, aligned))


@every
def test_input_is_only_read(spec: object) -> None:
    x = gaussian(MIXED).requires_grad_()
    before = x.detach().clone()
    make(spec).bind(MIXED, 1).compress(x, 0)
    assert torch.equal(x, before)


@every
def test_wrong_buffers_are_refused(spec: object) -> None:
    codec = make(spec).bind(MIXED, 1)
    x = gaussian(MIXED)
    message = codec.compress(x, 0)
    for wrong in (x[:-1], x.double(), x.view(1, -1)):
        with pytest.raises(ValueError, match="want a contiguous fp32 vector"):
            codec.compress(wrong, 0)
        with pytest.raises(ValueError, match="want a contiguous fp32 vector"):
            codec.decompress_into(message, wrong)
    with pytest.raises(ValueError, match=f"want a message of {codec.nbytes} uint8"):
        codec.decompress_into(message[:-1], x)
    with pytest.raises(ValueError, match="want a message"):
        codec.compress(x, 0, out=torch.empty(codec.nbytes))


def test_stateless_codecs_refuse_a_foreign_state() -> None:
    codec = make("sign").bind(Layout.of([("x", (4,))]), 1)
    assert codec.state() == {}
    with pytest.raises(ValueError, match="keeps no state"):
        codec.load_state({"Q": torch.zeros(1)})
