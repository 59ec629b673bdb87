"""Removes flows of a tracker from memory; see `statistics.keeping`."""

from __future__ import annotations

import numpy as np

from ..statistics.keeping import Kept, front_of, move_tables, places_of, rows_of, untouched
from . import state as st
from .tracker import FlowTracker

_PAIRING = ("evidence", "answers", "mismatches", "mismatches_in_row")


def keep_flows(tracker: FlowTracker, kept: Kept) -> None:
    """Keep only these flows; events of the others count as omitted.

    A flow whose peer is removed has no peer. The path MTU of a host pair is kept while the pair has
    flows.
    """
    # One array after the other: copies of all of them at once would double the memory.
    tracker.state = tracker.state._replace(used=tracker.state.used.copy())
    tracker.state = tracker.state._replace(flows=rows_of(tracker.state.flows, kept))
    tracker.state = tracker.state._replace(streams=rows_of(tracker.state.streams, kept, per=2))
    tracker.keep_opcodes(kept)
    tracker.state.used[st.USED_FLOWS] = len(kept.flows)
    _keep_partners(tracker, kept)
    _keep_pairs(tracker)
    _keep_lates(tracker)
    _keep_windows(tracker)
    _keep_recents(tracker)
    _keep_events(tracker, kept)
    tracker.histograms.keep(kept)
    tracker.densities.keep(kept)
    tracker.rebuild()


def _keep_partners(tracker: FlowTracker, kept: Kept) -> None:
    flows = tracker.flows
    for name in ("peer", "candidate"):
        before = flows[name].copy()
        flows[name] = np.where(kept.holds(before), kept.number[before], -1)
        left = (before >= 0) & (flows[name] < 0)
        for other in _PAIRING if name == "peer" else ("candidate_hits",):
            flows[other][left] = 0


def _keep_pairs(tracker: FlowTracker) -> None:
    """Host pairs of the kept flows, and the chain of flows of each."""
    flows, state = tracker.flows, tracker.state
    found, number = np.unique(flows["pair"], return_inverse=True)
    pairs = untouched(state.pairs)
    pairs[: len(found)] = state.pairs[found]
    heads = [[-1, -1] for _ in found]
    behind = []
    direction = (flows["src"] > flows["dst"]).astype(np.int64).tolist()
    for flow, (pair, way) in enumerate(zip(number.tolist(), direction, strict=True)):
        behind.append(heads[pair][way])
        heads[pair][way] = flow
    flows["pair"], flows["next_in_pair"] = number, behind
    pairs["head"][: len(found)] = np.array(heads, np.int32).reshape(-1, 2)
    state.used[st.USED_PAIRS] = len(found)
    tracker.state = state._replace(pairs=pairs)


def _keep_lates(tracker: FlowTracker) -> None:
    state = tracker.state
    late = state.streams["late"][: 2 * len(tracker)]
    places = places_of(late)
    state.used[st.USED_LATES] = len(places)
    tracker.state = state._replace(lates=front_of(state.lates, places))


def _keep_windows(tracker: FlowTracker) -> None:
    """Move the slots of the kept streams to the front of the pool."""
    state = tracker.state
    streams = state.streams[: 2 * len(tracker)]
    sizes = np.where(streams["window_bits"] > 0, 1 << streams["room_bits"].astype(np.int64), 0)
    starts = np.cumsum(sizes) - sizes
    slots = untouched(state.slots)
    move_tables(state.slots, streams["window"], streams["window_bits"], slots, starts)
    streams["window"] = np.where(sizes > 0, starts, 0)
    state.used[st.USED_SLOTS] = int(sizes.sum())
    tracker.state = state._replace(slots=slots)


def _keep_recents(tracker: FlowTracker) -> None:
    flows, state = tracker.flows, tracker.state
    recents, bits = untouched(state.recents), flows["recent_bits"].copy()
    bits[flows["recent"] < 0] = 0
    sizes = np.where(bits > 0, 1 << bits.astype(np.int64), 0)
    starts = np.cumsum(sizes) - sizes
    move_tables(state.recents, flows["recent"], bits, recents, starts)
    flows["recent"] = np.where(sizes > 0, starts, -1)
    state.used[st.USED_RECENTS] = int(sizes.sum())
    tracker.state = state._replace(recents=recents)


def _keep_events(tracker: FlowTracker, kept: Kept) -> None:
    state = tracker.state
    events = state.events[: int(state.used[st.USED_EVENTS])]
    stay = events[kept.holds(events["flow"])]
    stay["flow"] = kept.number[stay["flow"]]
    state.used[st.OMITTED_EVENTS] += len(events) - len(stay)
    state.used[st.USED_EVENTS] = len(stay)
    state.events[: len(stay)] = stay
