"""What each captured message waited for, told from the capture alone.

Per queue pair, in this order:

- *ping-pong*: the requests of the two directions strictly alternate, and none begins before the
  one of the other side has ended. Then each waits until the one before it is received.
- *window*: at most k messages were outstanding at once. Then each waits until the k-th
  before it is acknowledged. The data of READs has the window of the side that asks.
- Otherwise nothing is known, and nothing waits but for the order of the queue pair.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..analyzer.measures.messages import MessageStatistics
from .engine.model import ON_ACKED, ON_RECEIVED
from .message_log import REQUESTS, RESPONSES, MessageLog
from .traffic import SentMessages

LEAST_TURNS = 8
"""Messages of each side that must alternate: 16 messages of two sides that know nothing of each
other do so by chance once in 6,435 orders (2 of C(16, 8))."""


@dataclass
class _Told:
    """Queue pairs by what was found."""

    ping_pong: int = 0
    windows: list[int] = field(default_factory=list)
    unknown: int = 0


def sent_messages(
    log: MessageLog,
    statistics: MessageStatistics,
    peer: NDArray[np.int32],
    unit_flow: NDArray[np.int32],
) -> SentMessages:
    """The messages of units with what each waits for.

    peer: int32[flows], the other flow of the connection or -1. unit_flow: int32[units]. Flows
    of several units (they spray) have no messages here.
    """
    if log.full:
        return _none(
            f"asap: more than {len(log.messages):,} messages; units are offered whole and at once"
        )
    records = log.messages
    units = np.bincount(unit_flow, minlength=len(peer))
    single = units[records["flow"]] == 1
    records = records[single]
    records = records[np.argsort(records["flow"], kind="stable")]
    told = _Told()
    after, on = _waits(records, statistics, peer, told)
    unit_of_flow = np.zeros(len(peer), np.int32)
    unit_of_flow[unit_flow] = np.arange(len(unit_flow), dtype=np.int32)
    unit = unit_of_flow[records["flow"]]
    order = np.argsort(unit, kind="stable")
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    after = np.where(after >= 0, place[after], -1).astype(np.int32)
    return SentMessages(
        unit=unit[order],
        packets=records["packets"][order],
        wire_bytes=records["wire_bytes"][order],
        after=after[order],
        on=on[order],
        notes=_notes(len(records), told),
    )


def _waits(
    records: NDArray[np.void],
    statistics: MessageStatistics,
    peer: NDArray[np.int32],
    told: _Told,
) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """(after, on) of messages sorted by flow."""
    after = np.full(len(records), -1, np.int32)
    on = np.full(len(records), ON_ACKED, np.uint8)
    flows, starts = np.unique(records["flow"], return_index=True)
    rows = dict(zip(flows.tolist(), np.split(np.arange(len(records)), starts[1:]), strict=False))
    paired: set[int] = set()
    for flow, own in rows.items():
        if flow in paired:
            continue
        other = int(peer[flow])
        mutual = other in rows and int(peer[other]) == flow
        turns = _alternating(records, own, rows[other]) if mutual else None
        if turns is not None:
            after[turns[1:]] = turns[:-1]
            on[turns[1:]] = ON_RECEIVED
            paired.add(other)
            told.ping_pong += 1
            continue
        for kind, asking in ((REQUESTS, flow), (RESPONSES, other)):
            members = own[records["kind"][own] == kind]
            if not len(members):
                continue
            window = statistics.messages(asking).max_outstanding if asking >= 0 else None
            if window is None:
                told.unknown += 1
                continue
            told.windows.append(window)
            after[members[window:]] = members[:-window]
    return after, on


def _alternating(
    records: NDArray[np.void], own: NDArray[np.int64], others: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """The messages of both directions in turn, or None when they are no ping-pong."""
    if min(len(own), len(others)) < LEAST_TURNS or abs(len(own) - len(others)) > 1:
        return None
    both = np.concatenate([own, others])
    if (records["kind"][both] != REQUESTS).any():
        return None
    # Of equal times, one that has ended comes before one that goes on.
    both = both[np.lexsort((records["ended_ns"][both], records["begun_ns"][both]))]
    flow = records["flow"][both]
    if (flow[1:] == flow[:-1]).any():
        return None
    waited = records["ended_ns"][both][:-1] <= records["begun_ns"][both][1:]
    return both if waited.all() else None


def _none(note: str) -> SentMessages:
    no = np.zeros(0, np.int64)
    return SentMessages(
        no.astype(np.int32), no, no, no.astype(np.int32), no.astype(np.uint8), (note,)
    )


def _notes(messages: int, told: _Told) -> tuple[str, ...]:
    notes = []
    if messages:
        parts = []
        if told.ping_pong:
            parts.append(f"ping-pongs: {told.ping_pong:,}")
        if told.windows:
            least, most = min(told.windows), max(told.windows)
            size = f"{least:,}" if least == most else f"{least:,} to {most:,}"
            parts.append(f"flows with a window: {len(told.windows):,} (of {size})")
        if parts:
            notes.append(
                f"asap: {messages:,} messages wait for others as captured; {', '.join(parts)}"
            )
    if told.unknown:
        notes.append(
            f"asap: {told.unknown:,} flows are offered at once: "
            "the capture has no answers (or requests of READs) to tell a window from"
        )
    return tuple(notes)
