"""Compressors: tensor → bytes → tensor. One file each; `make` turns a scenario's value into one."""

from testbed.compressors.base import Codec, Compressor, option
from testbed.compressors.registry import available, make

__all__ = ["Codec", "Compressor", "available", "make", "option"]
