"""A small fabric with the captured links, so that the recovered hash can be replayed at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...analyzer.errors import UsageError
from ..fabrics.mapping import map_hosts
from ..fabrics.parse import parse_fabric
from .tapped import Direction


class SmallFabric(NamedTuple):
    """Options of `rocescope replay`."""

    fabric: str
    map: str


def small_fabric(found: Sequence[Direction]) -> SmallFabric | None:
    """Two leaves and a spine per captured link, with the hosts of both sides on one leaf each; None
    if no rule maps them so, or there are more links or hosts than a fabric can have."""
    if not found:
        return None
    names = sorted({found[0].seen.names[i] for one in found for i in _ends(one)})
    sides = [
        {one.seen.names[i] for i in np.unique(ends)}
        for one in found
        for ends in (one.seen.source, one.seen.destination)
    ]
    hosts = max(len(side) for side in sides)
    spec = f"leaf-spine:leaves=2,spines={len(found[0].seen.links)},hosts={hosts}"
    try:
        fabric = parse_fabric(spec)
    except UsageError:
        return None
    for rule in ("subnets", "order"):
        try:
            mapped = map_hosts(names, fabric, rule).hosts
        except UsageError:
            continue
        leaf = dict(zip(names, fabric.attachments.switch[mapped, 0].tolist(), strict=True))
        if (mapped >= 0).all() and all(len({leaf[name] for name in side}) == 1 for side in sides):
            return SmallFabric(spec, rule)
    return None


def _ends(one: Direction) -> set[int]:
    return {*one.seen.source.tolist(), *one.seen.destination.tolist()}
