"""γ by simulation: gossip on random vectors with the real compressor and the real mixing matrix, in one process.

CHOCO and DeepSqueeze call it for `gamma: auto`. CHOCO's workers take random steps, and the γ that keeps them closest to
each other is taken; DeepSqueeze's start apart, and the γ that brings them closest is. No training, a second or two of
one core, and close to what the papers found by training: on a ring of 8, top 1 % .0375, top 10 % .3, min-max of 4 or 8
bits 1.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from testbed.compressors.base import Codec, Compressor
from testbed.errors import TrainingError
from testbed.flat import Layout
from testbed.methods.base import Peer
from testbed.seeds import derive
from testbed.topology.gossip import Gossip

Kind = Literal["choco", "deepsqueeze"]

STEPS = 400  # of one simulation
ELEMENTS = 16_384  # of all workers' vectors together
LARGEST = 1 << 22  # elements of a tensor looked at in full
SMALLEST = 1e-3  # γ
GIVEN_UP = 1e8  # squared distance at which a simulation has diverged


def for_all(peer: Peer, kind: Kind, compressor: Compressor) -> float:
    """γ for this run: worker 0 simulates, all get its choice."""
    chosen = torch.zeros(1, device=peer.x.device)
    if peer.rank == 0:
        chosen[0] = gamma(kind, compressor, peer.gossip, peer.layout, peer.seed)
    peer.all_reduce(chosen)
    return round(float(chosen), 6)


def gamma(kind: Kind, compressor: Compressor, gossip: Gossip, layout: Layout, seed: int = 0) -> float:
    """The best γ up to 1, to about a tenth. The distance falls with γ until gossip becomes unstable, so the search goes
    down from 1 by halves until it is past the best, then looks closer around it."""
    distances: dict[float, float] = {}

    def look(candidate: float) -> None:
        if candidate not in distances:
            distances[candidate] = distance(kind, compressor, gossip, layout, seed, candidate)

    def best() -> float:
        return min(distances, key=lambda candidate: distances[candidate])

    candidate = 1.0
    while candidate >= SMALLEST and (not distances or candidate > best() / 5 or math.isinf(distances[best()])):
        look(candidate)
        candidate /= 2
    if math.isinf(distances[best()]):
        raise TrainingError(
            f"no γ down to {SMALLEST:g} is stable with {compressor} on {gossip.name}",
            hint="choose a compressor with a smaller error; unbiased ones need their scaled variant",
        )
    for factor in (2**0.5, 2**0.25):
        centre = best()
        look(centre / factor)
        look(min(1.0, centre * factor))
    small, real = _shape(layout, ELEMENTS // gossip.size), _shape(layout, LARGEST)
    return float(f"{best() * min(1.0, agreement(compressor, real) / agreement(compressor, small)):.2g}")


def agreement(compressor: Compressor, shape: tuple[int, ...]) -> float:
    """cos² of the angle between a Gaussian tensor and its compressed self. The best γ is about proportional to it, and
    for some compressors (qsgd, lowrank) it falls with the size of the tensor: the simulation's are small."""
    layout = Layout.of([("v", shape)])
    v = torch.randn(layout.numel, generator=torch.Generator().manual_seed(0))
    codec, decoded = compressor.bind(layout, seed=0), layout.zeros()
    codec.decompress_into(codec.compress(v, 0), decoded)
    return float(v.dot(decoded) ** 2 / (v.dot(v) * decoded.dot(decoded)).clamp_min(1e-30))


def distance(kind: Kind, compressor: Compressor, gossip: Gossip, layout: Layout, seed: int, gamma: float) -> float:
    """The workers' mean squared distance from their mean that this γ leads to; infinite where it diverges."""
    shape = _shape(layout, ELEMENTS // gossip.size)
    # A codec treats every tensor by itself: with one tensor per worker, one call compresses for all of them.
    codec = compressor.bind(Layout.of((f"w{i}", shape) for i in range(gossip.size)), derive(seed, "tune"))
    L = [torch.from_numpy(W - np.eye(gossip.size)).float() * gamma for W in gossip.matrices]
    random = np.random.Generator(np.random.SFC64(derive(seed, "tune", "vectors")))
    try:
        return (_choco if kind == "choco" else _deepsqueeze)(codec, L, gossip.size, random)
    except TrainingError:  # the codec met a number that is none
        return math.inf


def _choco(codec: Codec, L: list[Tensor], n: int, random: np.random.Generator) -> float:
    """Mean distance in the second half, when every worker takes a random step of equal size per round."""
    X, hats = torch.zeros(2, n, codec.layout.numel // n)
    total, count = 0.0, 0
    for t in range(STEPS):
        codec.decompress_into(codec.compress((X - hats).view(-1), t), hats.view(-1))
        X += torch.from_numpy(random.random(X.shape, dtype=np.float32)).sub_(0.5)
        X.addmm_(L[0], hats)
        if t % 20 == 19:
            now = _spread(X)
            if not now < GIVEN_UP:
                return math.inf
            if t >= STEPS // 2:
                total, count = total + now, count + 1
    return total / count


def _deepsqueeze(codec: Codec, L: list[Tensor], n: int, random: np.random.Generator) -> float:
    """Distance left at the end, from independent Gaussian vectors at the start."""
    X = torch.from_numpy(random.standard_normal((n, codec.layout.numel // n), dtype=np.float32))
    delta, sent = torch.zeros(2, *X.shape)
    for t in range(STEPS):
        delta += X
        codec.decompress_into(codec.compress(delta.view(-1), t), sent.zero_().view(-1))
        delta -= sent
        X.addmm_(L[t % len(L)], sent)
        if t % 20 == 19 and not _spread(X) < GIVEN_UP:
            return math.inf
    return _spread(X)


def _spread(X: Tensor) -> float:
    return float((X - X.mean(0)).square().mean())


def _shape(layout: Layout, most: int) -> tuple[int, ...]:
    """The model's largest tensor, cut down to about `most` elements: a low-rank compressor must see a matrix."""
    largest = max(layout.slots, key=lambda slot: slot.numel)
    most = max(1024, most)
    if largest.numel <= most or len(largest.shape) < 2:
        return (min(largest.numel, most),) if len(largest.shape) < 2 else largest.shape
    side = math.isqrt(most)
    rows, columns = largest.shape[0], largest.numel // largest.shape[0]
    return (rows, most // rows) if rows < side else (most // columns, columns) if columns < side else (side, side)
