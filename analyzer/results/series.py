"""Totals over time."""

from __future__ import annotations

from typing import Annotated

from .base import Record, about


class Series(Record, frozen=True):
    """Totals in fixed windows; all lists have the same length."""

    window_ns: int
    start_ns: int
    packets: list[int]
    wire_bytes: list[int]
    payload_bytes: list[int]
    reordered_packets: list[int]
    retransmitted_packets: list[int]
    duplicate_packets: list[int]
    ecn_marked_packets: list[int]
    cnps: list[int]
    naks: list[int]
    tap_wire_bytes: Annotated[
        dict[str, list[int]], about("wire bytes per tap; empty for a single tap")
    ]
