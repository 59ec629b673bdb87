"""Snapshots and events after flows left memory: only the others remain, with new numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from typing import Any

import msgspec
import numpy as np

from ....analyzer.results.events import Event
from ....analyzer.statistics.per_flow import Kept
from .snapshot import FlowColumns, MrcColumns, PathColumns, Snapshot


def kept_events(
    events: Iterable[Event], kept: Kept, renamed: dict[int, Event | None] | None = None
) -> Iterator[Event]:
    """The events of no flow, and those of kept flows.

    renamed: what became of an event, by its id(); snapshots share events.
    """
    renamed = {} if renamed is None else renamed
    for event in events:
        if id(event) not in renamed:
            renamed[id(event)] = _kept_event(event, kept)
        new = renamed[id(event)]
        if new is not None:
            yield new


def _kept_event(event: Event, kept: Kept) -> Event | None:
    if event.flow is None:
        return event
    number = int(kept.number[event.flow])
    return None if number < 0 else msgspec.structs.replace(event, flow=number)


def kept_snapshot(
    snapshot: Snapshot, kept: Kept, renamed: dict[int, Event | None] | None = None
) -> Snapshot:
    """A snapshot without time series, with the kept flows only. renamed: as `kept_events`."""
    flows = snapshot.flows
    rows = kept.of(len(flows))
    columns = {f.name: getattr(flows, f.name)[rows] for f in fields(flows)}
    peer = columns["peer"]
    columns["peer"] = np.where(kept.holds(peer), kept.number[peer], -1).astype(np.int32)
    return replace(
        snapshot,
        flows=FlowColumns(**columns),
        paths={by: _kept_paths(paths, kept) for by, paths in snapshot.paths.items()},
        owners={
            int(kept.number[flow]): owner
            for flow, owner in snapshot.owners.items()
            if kept.number[flow] >= 0
        },
        events=tuple(kept_events(snapshot.events, kept, renamed)),
        mrc=None if snapshot.mrc is None else _kept_mrc(snapshot.mrc, kept),
    )


def _kept_paths(paths: PathColumns, kept: Kept) -> PathColumns:
    known = len(paths.starts) - 1
    rows = kept.of(known)
    stays = kept.number[np.repeat(np.arange(known), paths.seen())] >= 0
    return replace(
        paths,
        starts=np.concatenate([[0], np.cumsum(paths.seen()[rows])]),
        width=paths.width[rows],
        fair=None if paths.fair is None else paths.fair[stays],
        **{
            name: getattr(paths, name)[stays]
            for name in ("key", "packets", "wire_bytes", "late", "marked")
        },
    )


def _kept_mrc(mrc: MrcColumns, kept: Kept) -> MrcColumns:
    rows = kept.of(len(mrc.values))
    columns: dict[str, Any] = {
        f.name: value[rows]
        for f in fields(mrc)
        if isinstance(value := getattr(mrc, f.name), np.ndarray)
    }
    return replace(mrc, **columns)
