"""What holds for every codec: accumulation, determinism, both engines alike, any alignment, no meddling."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest
import torch

from testbed.compressors import arrays, make
from testbed.flat import Layout

from .examples import EVERY, MIXED, NAMES, decoded, gaussian

every = pytest.mark.parametrize("spec", EVERY, ids=NAMES)
RANDOM = [name for name in NAMES if name.startswith(("quantize", "step", "qsgd", "randomk")) and "nearest" not in name]
drawn = pytest.mark.parametrize("spec", [EVERY[NAMES.index(name)] for name in RANDOM], ids=RANDOM)


@every
def test_decoding_accumulates_with_its_weight(spec: object) -> None:
    codec = make(spec).bind(MIXED, 1)
    message = codec.compress(gaussian(MIXED), 0)
    once = decoded(codec, message)
    dest = gaussian(MIXED, 9)
    expected = dest.double() - 0.3 * once.double()
    codec.decompress_into(message, dest, weight=-0.3)
    assert torch.allclose(dest.double(), expected, rtol=1e-5, atol=1e-5)
    untouched = message.clone()
    codec.decompress_into(message, dest, weight=0.0)
    assert torch.equal(message, untouched)
    assert torch.allclose(dest.double(), expected, rtol=1e-5, atol=1e-5)


@every
def test_any_peer_decodes_the_same_bits(spec: object) -> None:
    """Replicas: what owner and neighbours add up from the same bytes must never differ, whatever they did before."""
    sender, receiver = (make(spec).bind(MIXED, seed) for seed in (1, 2))
    receiver.compress(gaussian(MIXED, 5), 17)
    mine, theirs = gaussian(MIXED, 3), gaussian(MIXED, 3)
    for step in range(3):
        message = sender.compress(gaussian(MIXED, step), step)
        sender.decompress_into(message, mine, 0.7)
        receiver.decompress_into(message.clone(), theirs, 0.7)
    assert torch.equal(mine, theirs)


@every
def test_same_seed_and_step_same_bytes(spec: object) -> None:
    x = gaussian(MIXED)
    first, second = (make(spec).bind(MIXED, 1) for _ in range(2))
    a = [first.compress(x, step) for step in (4, 5)]
    torch.manual_seed(123)
    np.random.default_rng().random()
    b = [second.compress(x, step) for step in (4, 5)]
    assert all(torch.equal(one, other) for one, other in zip(a, b, strict=True))


@drawn
def test_noise_differs_by_step_and_worker(spec: object) -> None:
    x = gaussian(MIXED)
    codec = make(spec).bind(MIXED, 1)
    now = codec.compress(x, 4)
    assert not torch.equal(now, codec.compress(x, 5))
    assert not torch.equal(now, make(spec).bind(MIXED, 2).compress(x, 4))
    assert torch.equal(now, codec.compress(x, 4))  # steps can be repeated: nothing was consumed


@every
def test_global_generators_are_left_alone(spec: object) -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]
    codec = make(spec).bind(MIXED, 1)
    decoded(codec, codec.compress(gaussian(MIXED), 0))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # type: ignore[index]


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
def test_message_is_not_overwritten_by_the_next(spec: object) -> None:
    codec = make(spec).bind(MIXED, 1)
    first = codec.compress(gaussian(MIXED), 0)
    kept = first.clone()
    codec.compress(gaussian(MIXED, 1), 1)
    assert torch.equal(first, kept)


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


@every
def test_state_survives_a_checkpoint(spec: object) -> None:
    running = make(spec).bind(MIXED, 1)
    for step in range(3):
        running.compress(gaussian(MIXED, step), step)
    resumed = make(spec).bind(MIXED, 1)
    resumed.load_state(running.state())
    x = gaussian(MIXED, 3)
    assert torch.equal(running.compress(x, 3), resumed.compress(x, 3))


def test_stateless_codecs_refuse_a_foreign_state() -> None:
    codec = make("sign").bind(Layout.of([("x", (4,))]), 1)
    assert codec.state() == {}
    with pytest.raises(ValueError, match="keeps no state"):
        codec.load_state({"Q": torch.zeros(1)})
