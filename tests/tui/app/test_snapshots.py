"""Snapshots are shown in the order in which they were made, and seldom while nothing arrives."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rocescope.tui.app import snapshots as module
from rocescope.tui.app.snapshots import QUIET_EVERY_S, Snapshots


def test_no_snapshot_is_replaced_by_an_earlier_one():
    """Though another one is requested while the thread of the first has not yet told."""
    numbers, arrived, shown = iter(range(9)), [], []

    def post_message(message):
        if message.snapshot == 0:
            snapshots.request()
        arrived.append(message)

    session = SimpleNamespace(
        snapshot=lambda: next(numbers), focus=lambda: None, diagnosis_due=lambda: False
    )
    host = SimpleNamespace(
        view=SimpleNamespace(session=session, prepare=lambda _: None, frozen=False),
        key_at=0.0,
        run_worker=lambda work, **_: work(),
        post_message=post_message,
        request_snapshot=lambda: snapshots.request(),
    )
    snapshots = Snapshots(host)
    snapshots.show = lambda snapshot, _: shown.append(snapshot)
    snapshots.request()
    while arrived:
        snapshots.arrived(arrived.pop(0))
    assert shown == [0, 1]


@pytest.mark.parametrize(
    ("has_news", "waited", "asked"),
    [(True, 0.1, 1), (False, QUIET_EVERY_S - 0.1, 0), (False, QUIET_EVERY_S + 0.1, 1)],
)
def test_without_packets_there_is_one_snapshot_a_second(monkeypatch, has_news, waited, asked):
    requests = []
    session = SimpleNamespace(running=True, hurried=False, has_news=has_news)
    view = SimpleNamespace(session=session)
    host = SimpleNamespace(view=view, key_at=0.0, request_snapshot=lambda: requests.append(1))
    snapshots = Snapshots(host)
    snapshots.built_at = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: 100.0 + waited)
    snapshots.tick()
    assert len(requests) == asked
