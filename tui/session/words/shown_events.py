"""The events of what is looked at: of the time window, and of the flows that pass the filter."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from ....analyzer.results.events import Event
from ....report.words import human
from ....report.words.events import counted_kind
from ..snapshots.snapshot import Snapshot
from . import sentences


def shown_events(snapshot: Snapshot, passing: NDArray[np.bool_]) -> tuple[Event, ...]:
    """Those of a connection of which one flow passes, and those that belong to no flow.

    A NAK is an event of the flow that answers: who asks for a flow wants to see its NAKs.
    passing: of each flow.
    """
    if passing.all():
        return snapshot.events
    flows = np.flatnonzero(passing)
    wanted = {*flows.tolist(), *snapshot.flows.peer[flows].tolist()}
    return tuple(e for e in snapshot.events if e.flow is None or e.flow in wanted)


def sentence(snapshot: Snapshot, shown: tuple[Event, ...], filtered: bool) -> str:
    """How many, of which kinds, and which connection has the most."""
    if why := sentences.nothing(snapshot):
        return why
    others = len(snapshot.events) - len(shown)
    left = snapshot.events_omitted
    more = f"; {human.count(left)} more not kept" if left else ""
    if not shown:
        if others:
            return f"None of {human.counted(others, 'event')} is of a flow that passes{more}."
        return "Nothing worth a look happened."
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
    """Which connection has the most of them, where that says something."""
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
    return f"; {name} has the most, {human.count(most)}"
