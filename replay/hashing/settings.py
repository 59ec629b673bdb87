"""Hash settings of a user, and the group from which a hash selects a member."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Ints, NamedTuple, UInt16s

SeedUse = Literal["init", "prepend", "xor"]
Reduction = Literal["modulo", "range", "threshold"]

SEED_USES: tuple[SeedUse, ...] = ("init", "prepend", "xor")
REDUCTIONS: tuple[Reduction, ...] = ("modulo", "range", "threshold")


class Knob(NamedTuple):
    """A setting of one model, in addition to the common settings."""

    name: str
    default: str | int
    help: str
    choices: tuple[str, ...] = ()
    source: str = ""
    """Where the meaning is documented."""


@dataclass(frozen=True)
class HashSettings:
    """How one switch hashes. Every switch of a fabric may have its own."""

    model: str = "linux"
    """Name in the registry, `rocescope.replay.hashing.MODELS`."""
    field_set: str = "5-tuple"
    """See `keys.parse_field_set`. The policy selects the fields of the Linux model."""
    seed: int = 0
    """The production seed; sweeps replace it."""
    seed_recovered: bool = field(default=False, compare=False)
    """The seed was found from the choices of the switch; it did not tell it. Settings that differ
    in this alone are equal: they hash alike."""
    seed_use: SeedUse = "init"
    """init: start value of the function; prepend: four bytes, big-endian, before the
    fields; xor: mixed into the finished value."""
    rotate: int = 0
    """Number of bits by which the value is rotated right."""
    offset: int = 0
    """Low bits dropped after the rotation (SAI: ECMP hash offset)."""
    reduction: Reduction | None = None
    """modulo: value % slots; range: value * slots >> bits; threshold: hash-threshold of
    RFC 2992, as Linux does. None: the usual reduction of the model."""
    symmetric: bool = False
    """Both directions of a flow have the same hash (always in Linux)."""
    extra: Mapping[str, str | int] = field(default_factory=dict)
    """Settings of the model."""


class Group(NamedTuple):
    """Equal-cost next hops of one switch towards one destination, in route order."""

    weights: Ints
    """int64[k]: 1 each for plain ECMP; 0 is a member that is down."""
    buckets: UInt16s | None = None
    """uint16[b]: member in every bucket of a resilient group (`ip nexthop bucket show`);
    None: the group is not resilient. With buckets, weights no longer matter."""


def equal_cost(members: int) -> Group:
    """A plain group of `members` next hops."""
    if members < 1:
        raise UsageError("a group needs at least one next hop")
    return Group(np.ones(members, np.int64))
