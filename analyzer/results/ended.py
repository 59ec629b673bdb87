"""Traffic of an analysis that is in none of its flows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from .base import Record, about, facts_of

_TOTALS: dict[str, Callable[[list[int]], int]] = {"sum": sum, "min": min, "max": max}


class Ended(Record, frozen=True, kw_only=True):
    """Sums of flows that were idle and were removed from memory, and of packets beyond the limits.

    None of them is in `flows`. Counts are defined like those of a flow.
    """

    flows: int = 0
    queue_pairs: Annotated[
        int,
        about(
            "connections with requests or READ responses; a flow without a known"
            " connection counts as one"
        ),
    ] = 0
    connections: Annotated[int, about("known connections of these flows")] = 0
    flows_in_trouble: Annotated[
        int,
        about(
            "flows with losses, late, marked, refused or retransmitted packets: only"
            " the worst idle flows stay in `flows`"
        ),
    ] = 0
    first_time_ns: Annotated[int | None, about(total="min")] = None
    last_time_ns: Annotated[int | None, about(total="max")] = None
    packets: int = 0
    wire_bytes: int = 0
    payload_bytes: int = 0
    request_packets: int = 0
    response_packets: int = 0
    ack_packets: int = 0
    tap_copies: int = 0
    naks: int = 0
    rnr_naks: int = 0
    cnps: int = 0
    ecn_marked_packets: int = 0
    reordered_packets: int = 0
    retransmitted_packets: int = 0
    recovered_packets: int = 0
    duplicate_packets: int = 0
    mirror_duplicates: int = 0
    sequence_restarts: int = 0
    lost_between_taps: int = 0
    reordered_between_taps: int = 0
    marked_between_taps: Annotated[
        int, about("CE after the first tap; `ecn_marked_packets` holds those marked before it")
    ] = 0
    missing_packets: Annotated[int, about("without the flows of which a tap saw only a part")] = 0
    sequenced_packets: Annotated[
        int, about("request and response packets of flows with a PSN order")
    ] = 0
    partial_flows: Annotated[
        int, about("flows of which a tap saw only a part: their losses are unknown")
    ] = 0
    unknown_between_taps: Annotated[
        int, about("packets that a later tap did not see: whether lost is unknown")
    ] = 0
    untapped_flows: Annotated[int, about("flows on paths without a tap")] = 0
    missed_by_captures: Annotated[
        int, about("packets that passed a tap and are missing in its capture")
    ] = 0
    untracked_packets: Annotated[
        int,
        about(
            "of new flows beyond the limit of the terminal UI, or of addresses after"
            " the first 262,143: not analysed, and in no other sum"
        ),
    ] = 0
    untracked_wire_bytes: int = 0
    returned_flows: Annotated[
        int | None,
        about(
            "flows of captures that resumed after removal from memory: each counts as "
            "a new flow, losses and late packets in between are unknown; null with `--idle-after`: "
            "not counted"
        ),
    ] = None

    @property
    def in_part(self) -> bool:
        """Whether packets were not analysed, or not together with the others of their flow."""
        return bool(self.untracked_packets or self.returned_flows)

    def __bool__(self) -> bool:
        return bool(self.flows or self.untracked_packets)

    def joined(self, other: Ended) -> Ended:
        """The sums of both."""
        declared = {fact.name: fact.total for fact in facts_of(Ended)}
        totals: dict[str, Any] = {}
        for name in self.__struct_fields__:
            known = [n for n in (getattr(self, name), getattr(other, name)) if n is not None]
            form = _TOTALS[declared.get(name, "sum")]
            totals[name] = form(known) if known else None
        return Ended(**totals)
