"""Seeds of all switches of a fabric, derived from one number."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from ...kernels.kernel import UInt64s
from ...kernels.named import NamedTuple

PerSwitch: TypeAlias = Literal["equal", "different"]


class SeedRange(NamedTuple):
    """Seeds first, first + step, ... below end."""

    first: int
    end: int
    step: int = 1

    @property
    def seeds(self) -> int:
        return max(0, -(-(self.end - self.first) // self.step))

    def part(self, begin: int, end: int) -> UInt64s:
        """uint64: the seeds number begin .. end-1."""
        return np.arange(begin, end, dtype=np.uint64) * np.uint64(self.step) + np.uint64(self.first)


def switch_seeds(seeds: UInt64s, switches: int, per_switch: PerSwitch) -> UInt64s:
    """Seeds for `Walk.run`: uint64[rows] when equal, else uint64[rows, switches].

    Different: switch i has the 32 upper bits of number seed * 2^32 + i of the sequence that
    splitmix64 (Steele, Lea, Flood 2014) gives from 0, so a seed always means the same seeds.
    """
    if per_switch == "equal":
        return seeds
    number = np.arange(switches, dtype=np.uint64)
    x: UInt64s = np.add(seeds[:, None] << np.uint64(32), number)
    x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: UInt64s = (x ^ (x >> np.uint64(31))) >> np.uint64(32)
    return mixed
