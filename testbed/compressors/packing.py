"""Codes of 1…8 bits to bytes and back, on numpy or torch. Element i fills bits b·i … b·i+b−1 of a little-endian bit
string (4 bit: low nibble first; 1 bit: lowest bit first), padded to a byte at the end.

For b < 8 neighbours merge pairwise, two codes in a 16-bit word, four in 32, eight in 64, so that every operation runs
over contiguous words; unpacking splits the words again.
"""

from __future__ import annotations

import numpy as np

from testbed.compressors.arrays import Array

# Merging doubles the word until its codes fill whole bytes: one byte for 1, 2 and 4 bits, else b bytes of eight codes.
_WORD = {1: 64, 2: 32, 3: 64, 4: 16, 5: 64, 6: 64, 7: 64}


def padded(count: int) -> int:
    """The room that `pack` and `unpack` need: codes come in eights."""
    return -(-count // 8) * 8


def pack(xp: Array, codes: Array, count: int, bits: int, out: Array) -> None:
    """Pack codes[:count] into `out`, ⌈count·bits/8⌉ bytes. `codes` has room for padded(count) and is scribbled over."""
    if bits == 8:
        out[...] = codes[:count]
        return
    codes = codes[: padded(count)]
    codes[count:] = 0
    if bits == 1 and xp is np:
        out[...] = np.packbits(codes, bitorder="little")
        return
    words, width = codes, 8
    while width < _WORD[bits]:
        half, width = width, 2 * width
        used = bits * half // 8  # in each half of the word
        words = words.view(getattr(xp, f"int{width}"))
        low = (1 << used) - 1
        high = words >> (half - used)
        high &= low << used
        words &= low
        words |= high
    if bits in (1, 2, 4):
        out[...] = words[: len(out)]  # narrowing keeps the low byte
        return
    lanes = codes.reshape(-1, 8)
    groups, rest = divmod(len(out), bits)
    out[: groups * bits].reshape(-1, bits)[...] = lanes[:groups, :bits]
    out[groups * bits :] = lanes[-1, :rest]


def unpack(xp: Array, packed: Array, count: int, bits: int, codes: Array) -> None:
    """The way back: fills codes[:count]. `codes` has room for padded(count)."""
    if bits == 8:
        codes[:count] = packed
        return
    codes = codes[: padded(count)]
    if bits == 1 and xp is np:
        codes[...] = np.unpackbits(packed, bitorder="little")
        return
    words = codes.view(getattr(xp, f"int{_WORD[bits]}"))
    words[...] = 0
    if bits in (1, 2, 4):
        words[: len(packed)] = packed
    else:
        lanes = codes.reshape(-1, 8)
        groups, rest = divmod(len(packed), bits)
        lanes[:groups, :bits] = packed[: groups * bits].reshape(-1, bits)
        lanes[-1, :rest] = packed[groups * bits :]  # nothing where rest is 0
    half = _WORD[bits] // 2
    while half >= 8:
        used = bits * half // 8
        low = _repeat((1 << used) - 1, 2 * half, _WORD[bits])
        high = words << (half - used)
        high &= low << half
        words &= low
        words |= high
        half //= 2


def _repeat(mask: int, every: int, width: int) -> int:
    """The mask again every so many bits of a word."""
    return sum(mask << at for at in range(0, width, every))
