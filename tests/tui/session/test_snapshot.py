"""Stored snapshots take less memory and come back as they were."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
from captures import data

from rocescope.analyzer.results.base import Event
from rocescope.analyzer.results.flow import Owner
from rocescope.analyzer.statistics.per_flow import kept_flows
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import (
    FlowColumns,
    PathColumns,
    Snapshot,
    SourceState,
    kept_events,
    kept_snapshot,
    packed,
    unpacked,
)

# Stored snapshots take less memory and come back as they were.


def _bytes(columns: FlowColumns) -> int:
    return sum(getattr(columns, field.name).nbytes for field in fields(columns))


def test_a_stored_snapshot_comes_back() -> None:
    session = Session.open([str(data("i03_write_reorder5_AtoB"))])
    session.start()
    session.wait(300)
    snapshot = session.snapshot()
    session.close()
    stored = packed(snapshot)
    assert 3 * _bytes(stored.flows) < 2 * _bytes(snapshot.flows)
    again = unpacked(stored)
    for mine, theirs in (
        (again.flows, snapshot.flows),
        (again.paths["entropy"], snapshot.paths["entropy"]),
    ):
        for field in fields(mine):
            one, other = getattr(mine, field.name), getattr(theirs, field.name)
            if isinstance(other, np.ndarray):
                assert one.dtype == other.dtype, field.name
                assert np.array_equal(one, other), field.name
            else:
                assert one == other


# Snapshots after flows left memory.


def columns(flows):
    values = {f.name: np.arange(flows) + 10 for f in fields(FlowColumns)}
    return FlowColumns(**values | {"peer": np.array([1, 0, -1, -1][:flows], np.int32)})


def event(number, flow):
    return Event(number, "nak", flow, None, None, f"event {number}")


def test_columns_paths_owners_and_events_of_kept_flows_stay():
    empty = PathColumns.none()
    paths = replace(
        empty,
        starts=np.array([0, 2, 3, 3, 5]),
        key=np.array([1, 2, 3, 4, 5]),
        packets=np.arange(5),
        wire_bytes=np.arange(5),
        late=np.arange(5),
        marked=np.arange(5),
        width=np.array([2.0, 1.0, 0.0, 2.0]),
    )
    snapshot = Snapshot(
        SourceState("x", "live"),
        flows=columns(4),
        paths={"entropy": paths},
        owners={0: Owner(1, "a", None), 3: Owner(2, "b", None)},
        events=(event(0, 0), event(1, None), event(2, 3)),
    )
    # A fifth flow came after the snapshot.
    kept = kept_flows(np.array([False, True, True, True, False]))
    new = kept_snapshot(snapshot, kept)
    assert new.flows.packets.tolist() == [11, 12, 13]
    assert new.flows.peer.tolist() == [-1, -1, -1]
    assert new.paths["entropy"].starts.tolist() == [0, 1, 1, 3]
    assert new.paths["entropy"].key.tolist() == [3, 4, 5]
    assert new.paths["entropy"].width.tolist() == [1.0, 0.0, 2.0]
    assert new.owners == {2: Owner(2, "b", None)}
    assert [(e.time_ns, e.flow) for e in new.events] == [(1, None), (2, 2)]


def test_events_that_snapshots_share_stay_shared():
    kept, renamed = kept_flows(np.array([False, True])), {}
    events = [event(0, 1), event(1, 0)]
    first, second = (list(kept_events(events, kept, renamed)) for _ in range(2))
    assert len(first) == 1 and first[0] is second[0]
