"""Records common to the results of replay, sweep and recover-seed.

Field names are the names of the JSON output. Sizes are bytes on the wire, times are
nanoseconds. An unknown value is None, and a note gives the reason.
"""

from __future__ import annotations

from typing import Annotated

from ...analyzer.results.base import Record, about

SCHEMA_VERSION = "2.0"
EXACT = "addresses of the fabric"
"""`HostMapping.rule` of the addresses of the fabric itself."""


class HostMapping(Record, frozen=True, kw_only=True):
    """Hosts of the fabric that the addresses of a capture belong to."""

    rule: str
    hosts: Annotated[dict[str, str], about("host by address")]


class LinkEvidence(Record, frozen=True, kw_only=True):
    """Captured queue pairs that wait for other queue pairs of their host (`offer=asap`)."""

    queue_pairs: Annotated[int, about("queue pairs that wait for others")]
    messages_tested: Annotated[int, about("messages of these queue pairs after the first arrival")]
    messages_fixed: Annotated[
        int, about("of them, those that leave a fixed time after a message arrives")
    ]
    fixed_percent: Annotated[float | None, about("share; null: no queue pair waits")]
    median_gap_ns: Annotated[
        float | None, about("from an arrival to the message that waits for it; null: none waits")
    ]
    pairs_not_compared: Annotated[int, about("pairs of queue pairs that were not compared")]


class TrafficSummary(Record, frozen=True, kw_only=True):
    """The replayed traffic."""

    sources: Annotated[list[str], about("the captures, or the generated pattern")]
    flows: Annotated[int, about("one-way flows")]
    units: Annotated[int, about("placed units: flows, or entropy values of sprayed flows")]
    packets: int
    wire_bytes: int
    hosts: Annotated[int, about("hosts that send or receive")]
    window_ns: Annotated[int | None, about("length of time windows; null: no windows")]
    mapping: Annotated[HostMapping | None, about("null: generated traffic")] = None
    linked: Annotated[
        LinkEvidence | None, about("of captures offered as fast as possible; null: not searched")
    ] = None


class FabricSummary(Record, frozen=True, kw_only=True):
    """The fabric of the replay."""

    spec: str
    hosts: int
    switches: int
    links: Annotated[int, about("one-way links that are up")]
    links_down: int


class Chance(Record, frozen=True, kw_only=True):
    """Results of ideal random hashing for the same traffic on the same fabric."""

    mean: float
    p05: float
    p95: float
    draws: int
