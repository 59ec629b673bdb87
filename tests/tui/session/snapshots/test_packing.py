"""Stored snapshots take less memory and come back as they were."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
from captures import data

from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshots.packing import packed, unpacked
from rocescope.tui.session.snapshots.snapshot import FlowColumns


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
