"""Whether the tables of switches changed while paths were traced: a trace is not one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np

from ...kernels.kernel import Bools
from ...replay.fabrics.fabric import Fabric
from ..asking.commands import Request, Run
from .paths import TracedPaths

_BUCKETS = "ip -j nexthop bucket"
_COMMANDS = ("ip -j route", "ip -6 -j route", "ip -j nexthop", _BUCKETS)
_COUNTING = ("expires", "used")
"""Fields that change by themselves."""
_COUNTING_INSIDE = {"bucket": "idle_time", "resilient_args": "unbalanced_time"}
"""Fields that change by themselves, inside others."""
Tables: TypeAlias = Mapping[str, tuple[Any, ...] | None]
"""The tables of devices as they print them; None for a device that did not answer."""


def read_tables(run: Run, devices: Sequence[str]) -> Tables:
    """The routes, next-hop groups and buckets of resilient groups of devices now."""
    asked = [Request(device, command) for device in devices for command in _COMMANDS]
    said = run(asked)
    by_device: dict[str, tuple[Any, ...] | None] = {}
    for i, device in enumerate(devices):
        answers = said[i * len(_COMMANDS) : (i + 1) * len(_COMMANDS)]
        tables = [None if answer.problem else _table(answer.output) for answer in answers]
        if tables[-1] is None and not _resilient(tables[-2]):
            tables[-1] = []  # older kernels and iproute2 have no buckets
        by_device[device] = None if None in tables else tuple(tables)
    return by_device


def _resilient(groups: list[dict[str, Any]] | None) -> bool:
    """Whether a next-hop group has buckets, which decide the path; also if that is not known."""
    return groups is None or any(group.get("type") == "resilient" for group in groups)


def _table(output: bytes) -> list[dict[str, Any]] | None:
    """The entries without counters; None for anything else."""
    try:
        entries = msgspec.json.decode(output or b"[]", type=list[dict[str, Any]])
    except (msgspec.MsgspecError, RecursionError):
        return None
    for entry in entries:
        for field, counting in _COUNTING_INSIDE.items():
            if isinstance(inside := entry.get(field), dict):
                inside.pop(counting, None)
    return [{k: v for k, v in entry.items() if k not in _COUNTING} for entry in entries]


def changed(before: Tables, after: Tables) -> tuple[list[str], list[str]]:
    """(devices whose tables differ, devices that did not answer both times)."""
    unknown = [name for name in before if before[name] is None or after.get(name) is None]
    differ = [name for name in before if name not in unknown and before[name] != after[name]]
    return differ, unknown


def through(paths: TracedPaths, fabric: Fabric, switches: Sequence[str]) -> Bools:
    """bool[units]: whether the known part of a path, or its open end, is at one of the switches."""
    at = np.zeros(len(fabric.nodes.names) + 1, np.bool_)  # the last item serves -1
    at[[fabric.nodes.names.index(name) for name in switches]] = True
    links = paths.placement.links
    source = np.where(links >= 0, fabric.links.source[links], -1)
    touched: Bools = at[source].any(axis=1) | at[paths.switch]
    return touched
