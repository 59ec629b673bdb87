"""The terminal UI on live probes: traffic over a real veth pair, seen and counted exactly."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import waiting
from job_logs import nccl
from jobs import HERE, THERE, Job, frame
from network import roce, roce_frames
from real_terminal import terminals
from tui_driver import press, text_of
from tui_driver import until_shown as until

from rocescope.analyzer.errors import RocescopeError, UsageError
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.probes import rights as dropping
from rocescope.probes.hooks.attach import GONE, gone_text
from rocescope.probes.live import LiveOptions
from rocescope.probes.rights import LOADING, READING
from rocescope.tui.app import RocescopeApp
from rocescope.tui.session.live import open_live, open_recorded

# The terminal UI on live probes: traffic over a real veth pair, seen and counted exactly.


def link_ids():
    texts = []
    for path in Path("/proc/self/fdinfo").iterdir():
        with suppress(FileNotFoundError):
            texts.append(path.read_text())
    return {int(n) for text in texts for n in re.findall(r"^link_id:\s*(\d+)", text, re.MULTILINE)}


def live_app(net):
    session = open_live([net.interface("right")], LiveOptions(ring_bytes=1 << 20))
    return RocescopeApp(session)


def test_packets_appear_while_they_come_and_the_freeze_holds(network):
    async def run():
        net = network()
        app = live_app(net)
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: app.view.snapshot.source.dropped == 0)
            assert "Waiting for the first RoCE packet" in text_of(app)[2]
            net.send(roce_frames(500))
            await until(pilot, lambda: app.view.snapshot.source.packets == 500)
            assert app.view.snapshot.flows.packets.tolist() == [500]
            assert "live" in text_of(app)[0] and "dropped 0" in text_of(app)[0]
            await pilot.press("space")
            net.send([roce(psn) for psn in range(500, 700)])
            await pilot.pause(1.0)
            assert app.view.snapshot.source.packets == 500
            await pilot.press("space")
            await until(pilot, lambda: app.view.snapshot.source.packets == 700)
            assert app.view.snapshot.flows.late.tolist() == [0]
            analysis = app.view.session.analysis()
            assert analysis.flows[0].packets == 700
            assert analysis.captures[0].taps[0].dropped_frames == 0
            for key in ("4", "5", "6", "7", "8", "D", "2"):
                await pilot.press(key)
                await pilot.pause()
        assert not app.view.session.running

    asyncio.run(run())


@pytest.mark.thorough
def test_a_vanished_interface_is_said_on_line_1(network):
    async def run():
        net = network()
        app = live_app(net)
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: app.view.snapshot.source.dropped == 0)
            net.send(roce_frames(10))
            await until(pilot, lambda: app.view.snapshot.source.packets == 10)
            net.ip("link", "del", "left")
            await until(pilot, lambda: "disappeared" in text_of(app)[0])
            assert len(app.view.snapshot.flows) == 1

    asyncio.run(run())


def test_an_unknown_interface_becomes_one_line():
    session = open_live(["nosuchif0"])
    session.start()
    session.wait(300)
    error = session.snapshot().source.error
    assert error and "\n" not in error
    with pytest.raises(RocescopeError):
        session.analysis()


@pytest.mark.thorough
@pytest.mark.usefixtures("libibverbs")
def test_flows_know_their_owners_and_a_filter_leaves_the_probes_in_place(network):
    net = network()
    net.ip("addr", "add", f"{HERE}/24", "dev", "left")
    session = open_live([net.interface("left")], LiveOptions(ring_bytes=1 << 20))
    job = Job(5)

    def seen(packets):
        shown = session.snapshot()

        def come():
            nonlocal shown
            shown = session.snapshot()
            return shown.source.packets == packets and (shown.owners or not packets)

        waiting.until(come)
        return shown

    try:
        session.start()
        waiting.until(lambda: session.snapshot().source.dropped == 0)
        job.connect(0x21, 0x51)
        for psn in range(20):
            net.send([frame(HERE, THERE, 0x51, psn, 0x04)], "left")
        owner = seen(20).owners[0]
        assert (owner.pid, owner.rank, owner.end) == (job.pid, 5, "source")
        assert session.analysis().flows[0].owner == owner
        links = link_ids()
        assert not session._feed.pipeline.measuring.filtered
        assert session.set_filter("psn > 30")
        seen(0)
        assert session._feed.pipeline.measuring.filtered
        for psn in range(25, 40):
            net.send([frame(HERE, THERE, 0x51, psn, 0x04)], "left")
        assert seen(9).owners[0] == owner
        assert link_ids() == links
        session.halt()
        assert not session.running
        assert len(session.snapshot().flows) == 1
        assert not link_ids() & links
    finally:
        session.close()
        job.kill()


@pytest.mark.thorough
def test_privileges_are_given_up_before_the_screen_comes(network):
    net = network()
    code = f"""
import re, sys
from rocescope.probes.live import LiveOptions
from rocescope.tui.session.live import open_live
session = open_live(["{net.interface("left")}"], LiveOptions(ring_bytes=1 << 20), attach_now=True)
session.start()
while session.snapshot().source.dropped is None:
    pass
import contextlib, pathlib
for task in pathlib.Path("/proc/self/task").iterdir():
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        print(re.search(r"CapEff:\\s*(\\w+)", (task / "status").read_text())[1])
session.close()
"""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr
    held = {int(line, 16) for line in done.stdout.split()}
    names = READING + LOADING
    assert held == {sum(1 << dropping._NUMBERS[name] for name in names)}


@pytest.mark.thorough
def test_logs_that_grow_during_the_session_name_ranks(network, tmp_path):
    net = network()
    net.ip("addr", "add", f"{HERE}/24", "dev", "left")
    log = tmp_path / "a.log"
    session = open_live(
        [net.interface("left")],
        LiveOptions(ring_bytes=1 << 20),
        job_logs=(str(tmp_path / "*.log"),),
    )
    try:
        session.start()
        waiting.until(lambda: session.snapshot().source.dropped == 0)
        for psn in range(20):
            net.send([frame(HERE, THERE, 0x51, psn, 0x04)], "left")
        waiting.until(lambda: session.snapshot().source.packets == 20)
        assert session.snapshot().owners == {}
        assert "No such file" in " ".join(session.analysis().warnings)
        log.write_text("".join(f"{line}\n" for line in nccl("b", 7, 3, 11, THERE, [0x51])))
        waiting.until(lambda: session.snapshot().owners)
        owner = session.snapshot().owners[0]
        assert (owner.host, owner.pid, owner.ranks) == ("b", 7, (11, 3))
        analysis = session.analysis()
        assert analysis.flows[0].owner == owner
        assert [(pair.sender, pair.receiver) for pair in analysis.ranks.pairs] == [(11, 3)]
        assert session.set_filter("src_rank == 11") is False
        assert session.passing(session.snapshot()).tolist() == [True]
        with pytest.raises(UsageError, match="cannot be combined"):
            session.set_filter("src_rank == 11 and psn > 3")
    finally:
        session.close()


def test_of_many_interfaces_that_vanish_the_reason_comes_first():
    """Line 1 and the sentence cut what is longer than the screen."""
    assert gone_text([]) == ""
    assert gone_text(["eth2"]) == f"eth2 {GONE}"
    text = gone_text([f"lab0leaf1:spine{n}" for n in range(12)])
    assert text[:40].startswith("12 interfaces have disappeared") and text.endswith("leaf1:spine11")


# A live session that is recorded, over a real veth pair: in the app, and in a real terminal.


@pytest.mark.thorough
def test_a_recorded_session_goes_back_while_it_goes_on(network, tmp_path, need_tool):
    path = tmp_path / "record.pcapng"

    async def run():
        net = network()
        session = open_recorded([net.interface("right")], LiveOptions(ring_bytes=1 << 20), path)
        app = RocescopeApp(session)
        async with app.run_test(size=(120, 30)) as pilot:
            await until(pilot, lambda: app.view.snapshot.source.dropped == 0)
            await pilot.press("2")
            net.send(roce_frames(300))
            await until(pilot, lambda: app.view.snapshot.source.packets == 300)
            assert "rec record.pcapng" in text_of(app)[0]
            await pilot.pause(1.2)
            net.send([roce(psn) for psn in range(300, 500)])
            await until(pilot, lambda: app.view.snapshot.source.packets == 500)
            while app.view.snapshot.flows.packets.tolist() != [300]:
                await press(app, pilot, ["left_square_bracket"])
                await pilot.pause(0.3)
            assert "behind live by" in text_of(app)[0]
            net.send([roce(psn) for psn in range(500, 600)])  # it continues meanwhile
            await pilot.press("7")
            await until(pilot, lambda: app.screen.packets is not None)  # type: ignore[attr-defined]
            assert len(app.screen.packets) == 300  # type: ignore[attr-defined]
            await pilot.press("2")
            for _ in range(100):  # snapshots kept since; their number depends on the machine
                if app.view.snapshot.flows.packets.tolist() == [600]:
                    break
                await pilot.press("right_square_bracket")
                await pilot.pause(0.2)
            await until(pilot, lambda: app.view.snapshot.flows.packets.tolist() == [600])
            assert "behind" not in text_of(app)[0]
            await pilot.press("X")
            await until(pilot, lambda: not app.view.snapshot.source.running)
            assert app.view.snapshot.flows.packets.tolist() == [600]

    asyncio.run(run())
    tool = need_tool("tshark")
    command = [tool, "-r", str(path), "-T", "fields", "-e", "infiniband.bth.psn"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert [int(psn) for psn in shown] == list(range(600))


@pytest.mark.thorough
def test_all_that_was_recorded_is_read_when_it_ends_and_again(network, tmp_path):
    """`X` ends the recording, `X` again reads the file anew: always every frame of it."""
    path = tmp_path / "record.pcapng"

    async def run():
        net = network()
        session = open_recorded([net.interface("right")], LiveOptions(ring_bytes=1 << 24), path)
        app = RocescopeApp(session)
        async with app.run_test(size=(120, 30)) as pilot:
            await until(pilot, lambda: app.view.snapshot.source.dropped == 0)
            await pilot.press("2")
            net.send(roce_frames(2_000))
            await until(pilot, lambda: app.view.snapshot.source.packets == 2_000)
            net.send(roce(psn) for psn in range(2_000, 40_000))
            source = app.view.snapshot.source
            for _ in range(3):
                await pilot.press("X")
                await until(pilot, lambda before=source: app.view.snapshot.source is not before)
                await until(pilot, lambda: not app.view.session.running)
                await until(pilot, lambda: not app.view.snapshot.source.running)
                shown, source = app.view.snapshot, app.view.snapshot.source
                assert shown.flows.packets.tolist() == [40_000]
                seconds = (shown.end_ns - shown.start_ns) / 1e9
                assert source.packets_per_second == pytest.approx(40_000 / seconds)
                assert "stopped" in text_of(app)[0] and "no packet late" in text_of(app)[2]
            assert app.view.session.analysis().complete

    asyncio.run(run())


@pytest.mark.thorough
@pytest.mark.usefixtures("libibverbs")
def test_a_recording_names_owners(network, tmp_path):
    path, net = tmp_path / "record.pcapng", network()
    job = Job(5)

    async def run():
        session = open_recorded([net.interface("left")], LiveOptions(ring_bytes=1 << 20), path)
        app = RocescopeApp(session)
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: app.view.snapshot.source.dropped == 0)
            await pilot.press("2")
            job.connect(0x21, 0x51)
            net.send([frame(HERE, THERE, 0x51, psn, 0x04) for psn in range(20)])
            await until(pilot, lambda: app.view.snapshot.owners)
            await until(pilot, lambda: f"pid {job.pid}, rank 5 (source)" in "".join(text_of(app)))

    try:
        asyncio.run(run())
    finally:
        job.kill()
    (owner,) = [flow.owner for flow in analyze([str(path)], AnalyzeOptions()).flows]
    assert (owner.pid, owner.rank, owner.end) == (job.pid, 5, "source")


@pytest.mark.thorough
def test_a_recorded_session_whose_interface_vanishes_stands(network, tmp_path):
    async def run():
        net = network()
        path = tmp_path / "record.pcapng"
        session = open_recorded([net.interface("right")], LiveOptions(ring_bytes=1 << 20), path)
        app = RocescopeApp(session)
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: app.view.snapshot.source.dropped == 0)
            await pilot.press("2")
            net.send(roce_frames(10))
            await until(pilot, lambda: app.view.snapshot.source.packets == 10)
            net.ip("link", "del", "left")
            await until(pilot, lambda: "disappeared" in text_of(app)[0])
            assert len(app.view.snapshot.flows) == 1

    asyncio.run(run())


def test_live_in_a_real_terminal(network, need_tool, tmp_path):
    need_tool("tmux")
    net = network()
    record = tmp_path / "seen.pcapng"
    command = [sys.executable, "-m", "rocescope", "live", net.interface("right"), "--record"]
    with terminals(tmp_path) as terminal:
        window = terminal([*command, str(record)])
        window.wait("Waiting for the first RoCE packet")
        window.keys("2")
        net.send(roce_frames(400))
        window.wait("no packet late or lost")
        window.keys("7")
        window.wait("0 of 400 packets are not in order")
        window.keys("2", "[")
        window.wait("No older data is kept")
        window.keys("Space")
        window.wait("frozen")
        window.keys("Space", "X")
        window.wait("stopped")
        window.keys("q")
        assert "exit code 0" in window.wait("exit code")
    assert record.stat().st_size > 400 * 64


def test_a_closed_terminal_leaves_a_whole_recording(network, need_tool, tmp_path):
    """The probes are gone and the file has its end, where losses are counted."""
    need_tool("tmux")
    net = network()
    record, ended = tmp_path / "seen.pcapng", tmp_path / "ended"
    command = [sys.executable, "-m", "rocescope", "live", net.interface("right"), "--record"]
    watch = ["sh", "-c", f'trap : HUP; "$@"; echo $? > {ended}', "sh"]
    with terminals(tmp_path) as terminal:
        window = terminal([*watch, *command, str(record)])
        window.wait("Waiting for the first RoCE packet")
        window.keys("2")
        net.send(roce_frames(400))
        window.wait("no packet late or lost")
        window.close()
        waiting.until(lambda: ended.exists() and ended.read_text())
    assert ended.read_text() == f"{128 + signal.SIGHUP}\n"
    net.send(roce_frames(9))  # nobody listens any longer
    shown = subprocess.run(
        [need_tool("tshark"), "-r", str(record)], capture_output=True, text=True, check=True
    )
    assert len(shown.stdout.splitlines()) == 400 and "cut short" not in shown.stderr
    (capture,) = analyze([str(record)], AnalyzeOptions()).captures
    assert [tap.dropped_frames for tap in capture.taps if tap.frames] == [0]
