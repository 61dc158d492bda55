"""Orthonormal rows that both ends of an edge make bit for bit alike from equal input. PowerGossip calls it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

VANISHED = 1e-18  # a length below it: squares leave fp32's range
DEPENDENT = 1e-5  # share of a row's length outside the earlier rows below which it is rounding errors, not a direction


def orthonormalise(v: Tensor, draw: Callable[[], Tensor]) -> None:
    """Make the rows of each matrix of v (count, rank, length) orthonormal, in place, spanning what they spanned.

    Rows that are zero, or that earlier rows span, carry no direction; they are replaced by the same rows of draw().
    Results depend on shapes and values alone, so two ends of equal shape agree.
    """
    if v.shape[1] == 1:
        length = _length(v)
        if bool((length <= VANISHED).any()):
            v.copy_(torch.where(length <= VANISHED, draw(), v))
            length = _length(v)
        v.div_(length)
        return
    Q, R = torch.linalg.qr(v.mT)
    outside = R.diagonal(dim1=-2, dim2=-1).abs().unsqueeze(-1)
    lost = outside <= torch.clamp(_length(v) * DEPENDENT, min=VANISHED)
    if bool(lost.any()):
        v.copy_(torch.where(lost, draw(), v))
        Q = torch.linalg.qr(v.mT).Q
    v.copy_(Q.mT)


def _length(v: Tensor) -> Tensor:
    return torch.linalg.vector_norm(v, dim=-1, keepdim=True)  # type: ignore[no-any-return]
