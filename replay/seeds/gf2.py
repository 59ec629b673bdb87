"""Linear algebra over GF(2) on rows packed into Python integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Solution(NamedTuple):
    """All x with A x = b: `smallest` XOR any combination of `2 ** free` vectors."""

    smallest: int
    """The solution that is the smallest number; bit i is unknown i."""
    free: int
    """Number of free unknowns."""


def solve(columns: Sequence[int], target: int) -> Solution | None:
    """All sets of unknowns whose columns sum (XOR) to `target`; None if there are none.

    Columns are taken from the lowest unknown up, and only if lower columns do not span
    them, so the solution has the smallest value.
    """
    pivots: dict[int, tuple[int, int]] = {}  # highest bit -> (reduced column, unknowns in it)
    for number, column in enumerate(columns):
        reduced, unknowns = _reduced(column, pivots)
        if reduced:
            pivots[reduced.bit_length()] = reduced, unknowns ^ (1 << number)
    rest, unknowns = _reduced(target, pivots)
    return None if rest else Solution(unknowns, len(columns) - len(pivots))


def _reduced(value: int, pivots: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """The remainder of a value after elimination, and the unknowns used."""
    unknowns = 0
    while value and value.bit_length() in pivots:
        column, used = pivots[value.bit_length()]
        value ^= column
        unknowns ^= used
    if value:  # bits below the highest one may still be reducible, but they do not matter
        return value, unknowns
    return 0, unknowns


class AffineMap:
    """An unknown affine map over GF(2), learned from inputs and outputs."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[int, int]] = {}  # highest bit -> (input, output)

    @property
    def rank(self) -> int:
        """Number of independent inputs, including the constant."""
        return len(self._rows)

    def output(self, value: int) -> int | None:
        """The output of an input; None if the known inputs do not determine it."""
        rest, output = self._reduce((value << 1) | 1)
        return None if rest else output

    def learn(self, value: int, output: int) -> bool:
        """Add an observation; False if it contradicts earlier observations."""
        rest, expected = self._reduce((value << 1) | 1)
        if rest:
            self._rows[rest.bit_length()] = rest, output ^ expected
            return True
        return expected == output

    def _reduce(self, value: int) -> tuple[int, int]:
        output = 0
        while value and value.bit_length() in self._rows:
            row, known = self._rows[value.bit_length()]
            value ^= row
            output ^= known
        return value, output
