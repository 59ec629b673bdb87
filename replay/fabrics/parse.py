"""Descriptions of fabrics: spec strings, YAML, containerlab, GraphML, tables of routers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ...analyzer.errors import UsageError
from ...analyzer.words import choices
from ...kernels.records import NamedTuple
from .fabric import Fabric
from .kinds import LEAF_SPINE_PARAMETERS as LEAF_SPINE
from .kinds import MULTI_PLANE_PARAMETERS as MULTI_PLANE
from .kinds import PARAMETERS as FAT_TREE
from .kinds import RAIL_PARAMETERS as RAIL
from .kinds import fat_tree, leaf_spine, multi_plane, rail
from .parameters import (
    DURATION,
    RATE,
    RATE_AND_DELAY,
    Changes,
    Parameter,
    checked,
    rate_text,
    split_options,
)


class Kind(NamedTuple):
    """A kind of fabric in spec strings."""

    make: Callable[[Mapping[str, str]], Fabric]
    parameters: Mapping[str, Parameter]


KINDS: Mapping[str, Kind] = {
    "leaf-spine": Kind(leaf_spine, LEAF_SPINE),
    "fat-tree": Kind(fat_tree, FAT_TREE),
    "multi-plane": Kind(multi_plane, MULTI_PLANE),
    "rail": Kind(rail, RAIL),
}


FILES = "a YAML, containerlab or GraphML file, or linux:FOLDER"
_FILE_PARAMETERS = RATE_AND_DELAY
"""Options of a file: rate and delay of links without them."""


def parse_fabric(spec: str) -> Fabric:
    """The fabric that a spec describes.

    `KIND:key=value,...` with KIND one of `KINDS`, or a file (YAML, containerlab, GraphML),
    or `linux:FOLDER`; `,down=LINK` and `,slow=LINK:RATE` may follow any of them, and
    `,rate=RATE,delay=TIME` a file. Raises UsageError, for files with the line.
    """
    kind, _, rest = spec.partition(":")
    if kind in KINDS:
        options, changes = split_options(rest, kind)
        return changed(KINDS[kind].make(options), changes, spec.removesuffix(":"))
    name, _, rest = spec.partition(",")
    path = Path(name.removeprefix("linux:"))
    if not name or not path.exists():
        if name.startswith("linux:") or path.suffix or "/" in name:
            raise UsageError(f"there is no file {path}")
        raise UsageError(
            f"{spec!r} is not a fabric: {choices(kind, KINDS, 'give')} with parameters, {FILES}"
        )
    options, changes = split_options(rest, name)
    values = checked(name, options, _FILE_PARAMETERS)
    rate, delay = values.count("rate"), values.count("delay")
    if name.startswith("linux:"):
        from .linux_tables import linux_fabric

        return changed(linux_fabric(path, rate, delay), changes, spec)
    if path.suffix == ".graphml":
        from .files import read_graphml

        fabric, in_file = read_graphml(path, rate, delay)
    else:
        fabric, in_file = _of_yaml(path, rate, delay)
    return changed(changed(fabric, in_file, fabric.name), changes, fabric.name)


def _of_yaml(path: Path, rate: int, delay: int) -> tuple[Fabric, Changes]:
    from .files import containerlab, is_containerlab
    from .yaml_file import load_yaml, yaml_fabric

    source = load_yaml(path, FILES)
    if is_containerlab(source):
        return containerlab(source, rate, delay), Changes()
    return yaml_fabric(source, parse_fabric)


def changed(fabric: Fabric, changes: Changes, name: str) -> Fabric:
    """The fabric with links down or slow, and a name."""
    fabric = replace(fabric, name=name)
    if changes.slow:
        rates = fabric.links.rate_bits_per_second.copy()
        for link, rate in changes.slow:
            rates[fabric.find_links(link)] = rate
        fabric = fabric.with_links(rate_bits_per_second=rates)
    return fabric.down(changes.down) if changes.down else fabric


def parameter_help(kind: str) -> str:
    """The parameters of a kind of spec, one per line."""
    lines = [f"{kind}:key=value,... with"]
    for key, parameter in KINDS[kind].parameters.items():
        default = "" if parameter.default is None else f" (default {_shown(parameter)})"
        lines.append(f"  {key:<16} {parameter.help}{default}")
    lines.append(f"  {'down':<16} links or nodes that are down, joined by +: leaf1-spine2+spine3")
    lines.append(f"  {'slow':<16} links with another rate: leaf1-spine2:100G")
    return "\n".join(lines)


def _shown(parameter: Parameter) -> str:
    assert parameter.default is not None
    if parameter.kind == RATE:
        return rate_text(int(parameter.default))
    return f"{parameter.default}ns" if parameter.kind == DURATION else f"{parameter.default}"
