"""Results of `trace`. Field names are the names of the JSON output."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ...replay.results.base import SCHEMA_VERSION
from ...replay.results.replay import ReplayResult


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records."""


class TracedFlow(Record, frozen=True, kw_only=True):
    """A one-way flow, or one entropy value of a flow that sprays."""

    flow: int
    src: str
    dst: str
    src_port: int
    dest_qp: int
    packets: int
    wire_bytes: int
    complete: Annotated[bool, Meta(description="whether the path is known to its destination")]
    links: Annotated[list[str], Meta(description="the known links from the source host on")]
    evidence: Annotated[
        list[str],
        Meta(description="of every link: captured, single next hop, or computed, seed known"),
    ]
    ends_at: Annotated[str | None, Meta(description="switch where the known path ends early")]
    reason: Annotated[str | None, Meta(description="why it ends early")]
    contradicted: Annotated[
        bool, Meta(description="a captured link differs from the computed one; the path has it")
    ]


class OpenEnd(Record, frozen=True, kw_only=True):
    """A place at which paths end early."""

    switch: str | None
    reason: str
    flows: int


class TraceResult(Record, frozen=True, kw_only=True):
    """The paths of all flows, and how evenly they use the links."""

    version: str
    flows: list[TracedFlow]
    complete_flows: int
    hops: Annotated[dict[str, int], Meta(description="links of all paths, by evidence")]
    open_ends: list[OpenEnd]
    contradicted_flows: int
    loads: Annotated[
        ReplayResult | None,
        Meta(
            description="loads of the flows with complete paths, first as traced, then with other "
            "strategies; null: no path is complete"
        ),
    ]
    warnings: list[str]
    schema_version: str = SCHEMA_VERSION
