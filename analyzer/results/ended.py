"""Traffic of an analysis that is in none of its flows."""

from __future__ import annotations

from typing import Annotated

from .base import Record, about


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
    first_time_ns: int | None = None
    last_time_ns: int | None = None
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
        times = ("first_time_ns", "last_time_ns")
        back = [n for n in (self.returned_flows, other.returned_flows) if n is not None]
        sums = {
            name: getattr(self, name) + getattr(other, name)
            for name in self.__struct_fields__
            if name not in (*times, "returned_flows")
        }
        first, last = (
            [t for t in (getattr(self, name), getattr(other, name)) if t is not None]
            for name in times
        )
        return Ended(
            first_time_ns=min(first, default=None),
            last_time_ns=max(last, default=None),
            returned_flows=sum(back) if back else None,
            **sums,
        )
