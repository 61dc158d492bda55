"""Independent 64-bit seeds from one: a hash of the run's seed and what it is for, equal on every machine."""

from __future__ import annotations

import hashlib


def derive(seed: int, *purpose: int | str) -> int:
    """A seed for `purpose`, e.g. derive(seed, "noise", rank, step)."""
    text = "/".join([str(seed), *(f"{type(part).__name__}:{part}" for part in purpose)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
