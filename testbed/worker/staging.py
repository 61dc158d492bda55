"""Copies between a GPU and pinned host memory, which Gloo works on. Channels use it where x is on a GPU."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class Staging:
    """One channel's pinned buffers and their mirrors on the GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._host: dict[int, Tensor] = {}
        self._here: dict[tuple[int, int], Tensor] = {}

    def to_host(self, messages: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Copy each distinct message once. A buffer is free again: its last round was received."""
        copies: dict[int, Tensor] = {}
        staged: dict[int, Tensor] = {}
        for target, message in messages.items():
            if id(message) not in copies:
                host = self._host.get(target)
                if host is None or host.numel() < message.numel():
                    host = self._host[target] = torch.empty(message.numel(), dtype=torch.uint8, pin_memory=True)
                copies[id(message)] = host[: message.numel()].copy_(message, non_blocking=True)
            staged[target] = copies[id(message)]
        torch.cuda.current_stream(self._device).synchronize()
        return staged

    def to_device(self, messages: Mapping[int, Tensor], parity: int) -> dict[int, Tensor]:
        for source, message in messages.items():
            if (source, parity) not in self._here:
                self._here[source, parity] = torch.empty_like(message, device=self._device)
            self._here[source, parity].copy_(message, non_blocking=True)
        torch.cuda.current_stream(self._device).synchronize()
        return {source: self._here[source, parity] for source in messages}
