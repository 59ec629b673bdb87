"""What must not keep a key waiting."""

from __future__ import annotations

import asyncio
import gc
import os
from dataclasses import replace
from time import monotonic

import pytest
from captures import data
from tui_driver import settled, until_shown

from rocescope.probes.rights.priority import NICE
from rocescope.tui.app import snapshots, upkeep
from rocescope.tui.app.app import RocescopeApp
from rocescope.tui.messages import FocusReady, SnapshotReady
from rocescope.tui.session.session import Session

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
            monkeypatch.setattr(snapshots, "monotonic", lambda: app.key_at)
            app.on_snapshot_ready(SnapshotReady(older, focus))
            app.on_snapshot_ready(SnapshotReady(newer, focus))
            assert app.view.snapshot is shown
            await until_shown(pilot, lambda: app.view.snapshot is newer)
            monkeypatch.setattr(snapshots, "monotonic", lambda: app.key_at + 1)
            app.on_snapshot_ready(SnapshotReady(older, focus))
            assert app.view.snapshot is older

    asyncio.run(run())


@pytest.mark.thorough
def test_garbage_is_looked_for_while_no_key_waits(monkeypatch):
    collected = []
    monkeypatch.setattr(upkeep, "TIDY_EVERY_S", 0.02)
    monkeypatch.setattr(upkeep, "LONGEST_UNTIDY_S", 0.3)
    monkeypatch.setattr(upkeep, "THOROUGH_EVERY", 3)

    async def run():
        app = RocescopeApp(Session.open([str(I03[0])]))
        async with app.run_test() as pilot:
            await settled(app, pilot)
            monkeypatch.setattr(gc, "collect", collected.append)
            await until_shown(pilot, lambda: len(collected) >= 6)
            assert not gc.isenabled() and collected[:6].count(2) == 2
            now = monotonic() + 1
            monkeypatch.setattr(upkeep, "monotonic", lambda: now)
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
