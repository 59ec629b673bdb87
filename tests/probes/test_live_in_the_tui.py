"""The terminal UI on live probes: traffic over a real veth pair, seen and counted exactly."""

from __future__ import annotations

import asyncio

import pytest
from tui_driver import text_of

from rocescope.analyzer.errors import RocescopeError
from rocescope.probes.live import LiveOptions
from rocescope.tui.app import RocescopeApp
from rocescope.tui.live_feed import open_live

from .network import roce, roce_frames


def live_app(net):
    session = open_live([net.interface("right")], LiveOptions(ring_bytes=1 << 20))
    return RocescopeApp(session)


async def until(pilot, condition):
    for _ in range(400):
        await pilot.pause(0.05)
        if condition():
            return
    pytest.fail("it did not come")


def test_packets_appear_while_they_come_and_the_freeze_holds(network):
    async def run():
        net = network()
        app = live_app(net)
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: app.snapshot.source.dropped == 0)
            assert "Waiting for the first RoCE packet" in text_of(app)[2]
            net.send(roce_frames(500))
            await until(pilot, lambda: app.snapshot.source.packets == 500)
            assert app.snapshot.flows.packets.tolist() == [500]
            assert "live" in text_of(app)[0] and "dropped 0" in text_of(app)[0]
            await pilot.press("space")
            net.send([roce(psn) for psn in range(500, 700)])
            await pilot.pause(1.0)
            assert app.snapshot.source.packets == 500
            await pilot.press("space")
            await until(pilot, lambda: app.snapshot.source.packets == 700)
            assert app.snapshot.flows.late.tolist() == [0]
            analysis = app.session.analysis()
            assert analysis.flows[0].packets == 700
            assert analysis.captures[0].taps[0].dropped_frames == 0
            for key in ("2", "3", "4", "5", "6", "9", "1"):
                await pilot.press(key)
                await pilot.pause()
        assert not app.session.running

    asyncio.run(run())


def test_a_vanished_interface_is_said_on_line_1(network):
    async def run():
        net = network()
        app = live_app(net)
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: app.snapshot.source.dropped == 0)
            net.send(roce_frames(10))
            await until(pilot, lambda: app.snapshot.source.packets == 10)
            net.ip("link", "del", "left")
            await until(pilot, lambda: "disappeared" in text_of(app)[0])
            assert len(app.snapshot.flows) == 1

    asyncio.run(run())


def test_an_unknown_interface_becomes_one_line():
    session = open_live(["nosuchif0"])
    session.start()
    session.wait(20)
    error = session.snapshot().source.error
    assert error and "\n" not in error
    with pytest.raises(RocescopeError):
        session.analysis()
