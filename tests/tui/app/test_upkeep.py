"""What must not keep a key waiting."""

from __future__ import annotations

import asyncio
import gc
import os
from dataclasses import replace
from time import monotonic

import pytest
from captures import data
from tui_driver import settled

from rocescope.probes.rights.priority import NICE
from rocescope.tui.app import upkeep as upkeep
from rocescope.tui.app.app import RocescopeApp
from rocescope.tui.app.snapshots import PAINT_S
from rocescope.tui.app.upkeep import QUIET_S
from rocescope.tui.messages import SnapshotReady
from rocescope.tui.session.session import Session

I03 = [data("i03_write_reorder5_AtoB")]


def test_a_snapshot_is_drawn_after_the_key_that_came_before_it():
    async def run():
        app = RocescopeApp(Session.open([str(I03[0])]))
        async with app.run_test() as pilot:
            await settled(app, pilot)
            shown = app.view.snapshot
            older, newer = (replace(shown, events_omitted=n) for n in (1, 2))
            app.key_at = monotonic()
            app.on_snapshot_ready(SnapshotReady(older, app.view.record))
            app.on_snapshot_ready(SnapshotReady(newer, app.view.record))
            assert app.view.snapshot is shown
            await asyncio.sleep(2 * PAINT_S)
            assert app.view.snapshot is newer
            await asyncio.sleep(PAINT_S)
            app.on_snapshot_ready(SnapshotReady(older, app.view.record))
            assert app.view.snapshot is older

    asyncio.run(run())


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
            await asyncio.sleep(QUIET_S + 0.3)
            assert not gc.isenabled() and collected[:6].count(2) == 2
            collected.clear()
            began = monotonic()
            while monotonic() - began < 0.5:  # a key that is held down
                app.key_at = monotonic()
                await asyncio.sleep(0.005)
            assert 1 <= len(collected) <= 2

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
