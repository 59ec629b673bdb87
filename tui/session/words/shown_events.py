"""The events in the time window of the flows that pass the filter."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ....analyzer.results.events import Event
from ....kernels.kernel import Bools
from ....report.words import human
from ....report.words.events import counted_kind
from ..snapshots.snapshot import Snapshot
from . import sentences


def shown_events(snapshot: Snapshot, passing: Bools) -> tuple[Event, ...]:
    """Events of connections of which one flow passes, and events that belong to no flow.

    A NAK is an event of the responding flow, and the filter of a flow includes its NAKs.
    passing: bool by flow.
    """
    if passing.all():
        return snapshot.events
    flows = np.flatnonzero(passing)
    wanted = {*flows.tolist(), *snapshot.flows.peer[flows].tolist()}
    return tuple(e for e in snapshot.events if e.flow is None or e.flow in wanted)


def sentence(snapshot: Snapshot, shown: tuple[Event, ...], filtered: bool) -> str:
    """The number of events by kind, and the connection with the most."""
    if why := sentences.nothing(snapshot):
        return why
    others = len(snapshot.events) - len(shown)
    left = snapshot.events_omitted
    more = f"; {human.count(left)} more not kept" if left else ""
    if not shown:
        if others:
            count = human.counted(others, "event")
            return f"None of {count} belongs to a flow that passes the filter{more}."
        return "No event was detected."
    kinds = Counter(event.kind for event in shown)
    listed = ", ".join(counted_kind(n, kind) for kind, n in kinds.most_common())
    count = human.counted(len(shown), "event")
    if filtered:
        passes = "passes" if len(shown) == 1 else "pass"
        everything = human.counted(len(snapshot.events), "event")
        count = f"{human.count(len(shown))} of {everything} {passes} the filter"
        if apart := sum(event.flow is None for event in shown):
            belong = "belongs" if apart == 1 else "belong"
            more = f"; {human.count(apart)} of these {belong} to no flow{more}"
    return f"{count}: {listed}{more}{_most(snapshot, shown)}."


def _most(snapshot: Snapshot, shown: tuple[Event, ...]) -> str:
    """The connection with the most events, if there are several connections."""
    peer, data = snapshot.flows.peer, snapshot.flows.data_packets
    known = [e.flow for e in shown if e.flow is not None and e.flow < len(peer)]
    counts = Counter(max(flow, int(peer[flow])) for flow in known)  # of two flows, one
    if len(counts) < 2:
        return ""
    ((flow, most),) = counts.most_common(1)
    other = int(peer[flow])
    if other < 0:
        name = human.queue_pair(int(snapshot.flows.qp[flow]))
    else:
        sender = flow if data[flow] >= data[other] else other
        name = f"the connection of {human.queue_pair(int(snapshot.flows.qp[sender]))}"
    return f"; {name} has the most: {human.count(most)}"
