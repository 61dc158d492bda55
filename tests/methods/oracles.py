"""The papers' equations in numpy float64, all workers at once: row i of X is worker i. Independent of testbed/methods.

Each oracle yields X after every step. `d(X, t)` gives all directions, `C(V, t)` compresses every row; t counts from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

A = NDArray[np.float64]
Directions = Callable[[A, int], A]
Compress = Callable[[A, int], A]


def dpsgd_a(X: A, W: A, eta: float, d: Directions, gamma: float = 1.0) -> Iterator[A]:
    M = np.eye(len(W)) + gamma * (W - np.eye(len(W)))
    for t in _forever():
        X = M @ X - eta * d(X, t)
        yield X


def dpsgd_b(X: A, W: A, eta: float, d: Directions, gamma: float = 1.0) -> Iterator[A]:
    M = np.eye(len(W)) + gamma * (W - np.eye(len(W)))
    for t in _forever():
        X = M @ (X - eta * d(X, t))
        yield X


def naive(X: A, W: A, eta: float, d: Directions, C: Compress, exact_self: bool = False) -> Iterator[A]:
    for t in _forever():
        Q = C(X, t)
        mixed = W @ Q
        if exact_self:
            mixed += np.diag(W)[:, None] * (X - Q)
        X = mixed - eta * d(X, t)
        yield X


def dcd(X: A, W: A, eta: float, d: Directions, C: Compress) -> Iterator[A]:
    for t in _forever():
        H = W @ X - eta * d(X, t)  # replicas equal the owners' models
        X = X + C(H - X, t)
        yield X


def ecd(X: A, W: A, eta: float, d: Directions, C: Compress) -> Iterator[A]:
    Y = X.copy()
    for k in _forever():
        t = k + 1
        following = W @ Y - eta * d(X, k)
        Z = (1 - t / 2) * X + (t / 2) * following
        Y = (1 - 2 / t) * Y + (2 / t) * C(Z, k)
        X = following
        yield X


def deepsqueeze(X: A, W: A, eta: float, d: Directions, C: Compress, gamma: float) -> Iterator[A]:
    delta = np.zeros_like(X)
    for t in _forever():
        half = X - eta * d(X, t)
        V = half + delta
        Q = C(V, t)
        delta = V - Q
        X = half + gamma * (W - np.eye(len(W))) @ Q
        yield X


def choco_icml(X: A, W: A, eta: float, d: Directions, C: Compress, gamma: float) -> Iterator[A]:
    hats = np.zeros_like(X)
    for t in _forever():
        half = X - eta * d(X, t)
        hats = hats + C(half - hats, t)
        X = half + gamma * (W @ hats - hats)
        yield X


def choco_iclr(X: A, W: A, eta: float, d: Directions, C: Compress, gamma: float) -> Iterator[A]:
    """Algorithm 1 as printed; yields after its first line, where the testbed's step ends."""
    hats, half = np.zeros_like(X), X
    for t in _forever():
        X = half + gamma * (W @ hats - hats)
        if t:
            yield X
        hats = hats + C(X - hats, t)
        half = X - eta * d(X, t)


def powergossip(
    X: list[A], W: A, eta: float, d: Callable[[list[A], int], list[A]], q: dict[tuple[int, int], A], gamma: float
) -> Iterator[list[A]]:
    """One matrix per worker, rank 1, one iteration per step; q by edge (lo, hi) as drawn at the start."""
    vectors = dict(q)
    for t in _forever():
        grads = d(X, t)
        update = [np.zeros_like(M) for M in X]
        for (lo, hi), v in vectors.items():
            v = v / np.linalg.norm(v)
            D = X[hi] - X[lo]
            if t % 2 == 0:  # the first iteration is odd
                vectors[lo, hi] = out = D @ v
                estimate = np.outer(out, v)
            else:
                vectors[lo, hi] = out = D.T @ v
                estimate = np.outer(v, out)
            update[hi] -= gamma * W[hi, lo] * estimate
            update[lo] += gamma * W[lo, hi] * estimate
        X = [M + u - eta * g for M, u, g in zip(X, update, grads, strict=True)]
        yield X


def allreduce(X: A, eta: float, d: Directions) -> Iterator[A]:
    for t in _forever():
        X = X - eta * d(X, t).mean(0)
        yield X


def ef(X: A, eta: float, d: Directions, C: Compress) -> Iterator[A]:
    E = np.zeros_like(X)
    for t in _forever():
        P = d(X, t) + E
        Q = C(P, t)
        E = P - Q
        X = X - eta * Q.mean(0)
        yield X


def _forever() -> Iterator[int]:
    t = 0
    while True:
        yield t
        t += 1
