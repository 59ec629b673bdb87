"""What the results of replay, sweep and recover-seed have in common.

Field names are those of the JSON output. Sizes are bytes on the wire, times
nanoseconds. A value that cannot be known is None, and a note says why.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

SCHEMA_VERSION = "1.1"


class Record(msgspec.Struct, frozen=True):
    """Base of all result records."""


class TrafficSummary(Record, frozen=True, kw_only=True):
    """What was replayed."""

    sources: Annotated[list[str], Meta(description="the captures, or the pattern generated")]
    flows: Annotated[int, Meta(description="one-way flows")]
    units: Annotated[
        int, Meta(description="what is placed: a flow, or one entropy value of a sprayed flow")
    ]
    packets: int
    wire_bytes: int
    hosts: Annotated[int, Meta(description="hosts that send or receive")]
    window_ns: Annotated[int | None, Meta(description="None: loads are not resolved in time")]


class FabricSummary(Record, frozen=True, kw_only=True):
    """Where it was replayed."""

    spec: str
    hosts: int
    switches: int
    links: Annotated[int, Meta(description="one-way links that are up")]
    links_down: int


class Chance(Record, frozen=True, kw_only=True):
    """What ideal random hashing gives for the same traffic on the same fabric."""

    mean: float
    p05: float
    p95: float
    draws: int
