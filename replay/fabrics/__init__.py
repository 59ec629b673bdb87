"""Descriptions of fabrics: spec strings, YAML, containerlab, GraphML, routers' own tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...analyzer.errors import UsageError
from ..fabric import Fabric
from .fat_tree import PARAMETERS as FAT_TREE
from .fat_tree import fat_tree
from .leaf_spine import PARAMETERS as LEAF_SPINE
from .leaf_spine import leaf_spine
from .multi_plane import PARAMETERS as MULTI_PLANE
from .multi_plane import multi_plane
from .parameters import Changes, Parameter, split_options
from .rail import PARAMETERS as RAIL
from .rail import rail


class Kind(NamedTuple):
    """A kind of fabric that a spec string makes."""

    make: Callable[[Mapping[str, str]], Fabric]
    parameters: Mapping[str, Parameter]


KINDS: Mapping[str, Kind] = {
    "leaf-spine": Kind(leaf_spine, LEAF_SPINE),
    "fat-tree": Kind(fat_tree, FAT_TREE),
    "multi-plane": Kind(multi_plane, MULTI_PLANE),
    "rail": Kind(rail, RAIL),
}


def parse_fabric(spec: str) -> Fabric:
    """The fabric that a spec describes.

    `KIND:key=value,...` with KIND one of `KINDS`, or a file (YAML, containerlab, GraphML),
    or `linux:DIR`; `,down=LINK` and `,slow=LINK:RATE` may follow any of them. Raises
    UsageError, for files with the line.
    """
    kind, _, rest = spec.partition(":")
    if kind in KINDS:
        options, changes = split_options(rest, kind)
        return changed(KINDS[kind].make(options), changes, spec)
    raise UsageError(f"{spec!r} is no fabric: give one of {', '.join(KINDS)}")


def changed(fabric: Fabric, changes: Changes, name: str) -> Fabric:
    """The fabric with links down or slow."""
    from dataclasses import replace

    fabric = replace(fabric, name=name)
    if changes.slow:
        rates = fabric.links.rate_bits_per_second.copy()
        for link, rate in changes.slow:
            rates[fabric.find_links(link)] = rate
        fabric = fabric.with_links(rate_bits_per_second=rates)
    return fabric.down(changes.down) if changes.down else fabric
