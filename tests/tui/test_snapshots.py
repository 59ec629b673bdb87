"""What must not keep a key waiting."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from dataclasses import replace
from time import monotonic
from types import SimpleNamespace

import msgspec
import pytest
from captures import data
from factories_results import diagnosis
from tui_driver import drive, settled, text_of, until_shown

from rocescope.probes.rights import NICE
from rocescope.tui import snapshots as module
from rocescope.tui.app import RocescopeApp
from rocescope.tui.host import FocusReady, SnapshotReady
from rocescope.tui.session.session import Session
from rocescope.tui.settings import Settings
from rocescope.tui.snapshots import QUIET_EVERY_S, Snapshots

# What must not keep a key waiting.

I03 = [data("i03_write_reorder5_AtoB")]


@pytest.mark.thorough
def test_a_snapshot_is_drawn_after_the_key_that_came_before_it(monkeypatch):
    async def run():
        app = RocescopeApp(Session.open([str(I03[0])]))
        async with app.run_test() as pilot:
            await settled(app, pilot)
            shown, session = app.view.snapshot, app.view.session
            focus = FocusReady(session, session.selected, app.view.record)
            older, newer = (replace(shown, events_omitted=n) for n in (1, 2))
            app.key_at = monotonic()
            monkeypatch.setattr(module, "monotonic", lambda: app.key_at)
            app.on_snapshot_ready(SnapshotReady(older, focus))
            app.on_snapshot_ready(SnapshotReady(newer, focus))
            assert app.view.snapshot is shown
            await until_shown(pilot, lambda: app.view.snapshot is newer)
            monkeypatch.setattr(module, "monotonic", lambda: app.key_at + 1)
            app.on_snapshot_ready(SnapshotReady(older, focus))
            assert app.view.snapshot is older

    asyncio.run(run())


@pytest.mark.thorough
def test_garbage_is_looked_for_while_no_key_waits(monkeypatch):
    collected = []
    monkeypatch.setattr(module, "TIDY_EVERY_S", 0.02)
    monkeypatch.setattr(module, "LONGEST_UNTIDY_S", 0.3)
    monkeypatch.setattr(module, "THOROUGH_EVERY", 3)

    async def run():
        app = RocescopeApp(Session.open([str(I03[0])]))
        async with app.run_test() as pilot:
            await settled(app, pilot)
            monkeypatch.setattr(gc, "collect", collected.append)
            await until_shown(pilot, lambda: len(collected) >= 6)
            assert not gc.isenabled() and collected[:6].count(2) == 2
            now = monotonic() + 1
            monkeypatch.setattr(module, "monotonic", lambda: now)
            app.upkeep._tidy()
            collected.clear()
            for _ in range(100):  # half a second of a key that is held down
                now += 0.005
                app.key_at = now
                app.upkeep._tidy()
            assert len(collected) == 1

    asyncio.run(run())
    assert gc.isenabled()


@pytest.mark.usefixtures("root")
def test_who_draws_runs_before_who_reads():
    def nice():
        return os.getpriority(os.PRIO_PROCESS, 0)

    async def run():
        app = RocescopeApp(Session.open([str(I03[0])]))
        async with app.run_test() as pilot:
            await settled(app, pilot)
            loop = asyncio.get_running_loop()
            return nice(), await loop.run_in_executor(None, nice)

    before = nice()
    assert asyncio.run(run()) == (min(NICE, before), max(0, before))
    assert nice() == max(0, before)


# Snapshots are shown in the order in which they were made, and seldom while nothing arrives.

SNAPSHOTS_I03 = str(data("i03_write_reorder5_AtoB"))


def test_no_snapshot_is_replaced_by_an_earlier_one():
    """Though another one is requested while the thread of the first has not yet told."""
    numbers, arrived, shown = iter(range(9)), [], []

    def post_message(message):
        if message.snapshot == 0:
            snapshots.request()
        arrived.append(message)

    session = SimpleNamespace(
        snapshot=lambda: next(numbers),
        selected=None,
        focus=lambda key: None,
        diagnosis_due=lambda: False,
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


def announcing(kind, titles=None):
    """Bells and lines after each of several diagnoses of a session of this kind.

    titles: a list that gets the titles of the lines.
    """
    told, loss = [], diagnosis().findings[0]
    dead = msgspec.structs.replace(
        loss, severity="critical", sentence="one is dead", from_ns=1795263081_999999999
    )
    other = msgspec.structs.replace(dead, kind="stalled", sentence="two is dead")

    def notify(line, title, **_):
        told.append(line[:11])
        if titles is not None:
            titles.append(title)

    host = SimpleNamespace(
        bell=lambda: told.append("bell"),
        notify=notify,
        request_snapshot=lambda: None,
        view=SimpleNamespace(session=None),
        key_at=0.0,
    )
    snapshots = Snapshots(host)

    def session():
        return SimpleNamespace(kind=kind, diagnosing=SimpleNamespace(judged=None))

    def judged(*findings):
        told.clear()
        host.view.session.diagnosing.judged = SimpleNamespace(findings=findings)
        snapshots.judged()
        return list(told)

    host.view.session = session()
    heard = [judged(loss), judged(loss, dead), judged(dead, other), judged(), judged(dead)]
    host.view.session = session()
    return [*heard, judged(dead)]


def test_each_critical_finding_of_a_live_session_rings_once():
    one, two = ["bell", "one is dead"], ["bell", "two is dead"]
    assert announcing("live") == [[], one, two, [], [], one]
    assert not any(announcing("file"))


def test_the_line_of_a_critical_finding_has_its_time_of_day():
    titles = []
    announcing("live", titles)
    assert titles and set(titles) == {"critical, since 12:11:21 UTC"}


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


class ReadLate(Session):
    """A session whose capture is read from begin to end while its first snapshot is made."""

    def snapshot(self):
        first = super().snapshot()
        self.__dict__.setdefault("made", threading.Event()).set()
        assert self.wait(300)
        return first

    def _read(self, generation):
        assert self.__dict__.setdefault("made", threading.Event()).wait(300)
        super()._read(generation)


def test_the_only_snapshot_with_flows_is_followed_by_the_record_of_the_first(monkeypatch):
    """The first snapshot is empty, and the second, which comes with the diagnosis, is the last."""
    monkeypatch.setattr(module, "FIRST_EVERY_S", 3600)
    lines = drive(
        [],
        ["6"],
        look=text_of,
        session=ReadLate.open([SNAPSHOTS_I03]),
        settings=Settings(refresh_hz=0.001),
        start="diagnosis",
    )
    assert "packets retransmitted in" in lines[2]


def test_a_record_that_comes_late_replaces_none():
    """A worker that was cancelled ends its reading: its flow has no record, or is of a session
    that was left."""

    def late(app):
        session, record = app.view.session, app.view.record
        shown = app.view.snapshot.key(0), app.view.snapshot.key(1)
        other = next(key for key in shown if key != session.selected)
        assert record is not None
        app.post_message(FocusReady(session, other, None))
        app.post_message(FocusReady(Session.open([SNAPSHOTS_I03]), session.selected, None))
        return record

    records = []
    drive(
        [SNAPSHOTS_I03],
        [lambda app: records.append(late(app))],
        look=lambda app: records.append(app.view.record),
    )
    assert records[0] == records[1]


def test_a_snapshot_of_a_session_that_was_left_is_not_shown():
    app_of_first = []

    def change(app):
        app_of_first.append((app.view.session, app.view.snapshot))
        app.change_session(Session.open([str(data("c10_rping_ipv4"))]))
        session, snapshot = app_of_first[0]
        app.snapshots._show(module.SnapshotReady(snapshot, FocusReady(session, None, None)))
        assert app.view.snapshot is not snapshot and app.view.session.selected is None

    names = drive([SNAPSHOTS_I03], [change], look=lambda app: app.view.snapshot.source.name)
    assert names.startswith("c10_rping")
