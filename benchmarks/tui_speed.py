"""How fast the terminal UI is: key to paint, CPU and memory with many queue pairs.

Drives the real app without a terminal, every paint encoded for one:

    python benchmarks/tui_speed.py capture     10,000 flows in a capture that was read
    sudo python benchmarks/tui_speed.py live   10,000 flows from the generator in the kernel
    sudo python benchmarks/tui_speed.py losses   frames the probes lose with screens and without
    python benchmarks/tui_speed.py open        20 million packets: the screens during the read
    python benchmarks/tui_speed.py start       seconds from the command to its flows on a terminal

The app and the generator run in two separate processes.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from generate import write
from measure import start_up
from probes_generator import Link
from textual import events
from textual._compositor import CompositorUpdate

from rocescope.probes.live import LiveOptions
from rocescope.tui.app import RocescopeApp
from rocescope.tui.session.live import open_live, open_recorded
from rocescope.tui.session.session import Session

SIZE = (160, 50)
KEYS = ("j", "j", "k", "pagedown", "s", "S", "4", "j", "2", "5", "6", "2", "p", "a", "a", "home")
WHAT = ("capture", "live", "losses", "open", "start", "use-live", "use", "watch")
SETTLE_S, WATCH_S = 2.0, 5.0
PACED_EVERY_S = 0.05
STARTS = 5
KEYS_EVERY_S = 0.15
"""Seven keys per second, like a user who sometimes holds a cursor key."""


class Watched(RocescopeApp):
    """The app, every paint noted and encoded as for a terminal."""

    CSS_PATH = Path(inspect.getfile(RocescopeApp)).with_name("app.tcss")

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.handled = 0.0
        self.painted: asyncio.Event = asyncio.Event()
        self.painted_at = 0.0
        self.paints = 0
        self.first_paint_at = 0.0
        self.computed: list[float] = []
        self.unhindered: list[float] = []

    async def on_event(self, event: events.Event) -> None:
        await super().on_event(event)
        if isinstance(event, events.Key):
            self.handled = time.perf_counter()

    def _display(self, screen: Any, renderable: Any) -> None:
        began = time.perf_counter()
        super()._display(screen, renderable)
        if self._batch_count or not isinstance(renderable, CompositorUpdate):
            return
        renderable.render_segments(self.console)
        self.paints += 1
        self.first_paint_at = self.first_paint_at or time.perf_counter()
        if 0 < self.handled <= began and screen is self.screen:
            self.handled, self.painted_at = 0.0, time.perf_counter()
            self.painted.set()

    async def press(self, key: str) -> float | None:
        """Milliseconds from a key to the first paint that began after it was handled."""
        self.painted.clear()
        start, (computed, waited) = time.perf_counter(), own_times()
        self.post_message(events.Key(key, key if len(key) == 1 else None))
        try:
            await asyncio.wait_for(self.painted.wait(), 2)
        except TimeoutError:
            return None
        took = (self.painted_at - start) * 1e3
        now = own_times()
        self.computed.append((now[0] - computed) * 1e3)
        self.unhindered.append(max(0.0, took - (now[1] - waited) * 1e3))
        return took


def own_times() -> tuple[float, float]:
    """Seconds this thread has run, and has waited for a processor that others had."""
    ran, waited, _ = Path("/proc/thread-self/schedstat").read_text().split()
    return int(ran) / 1e9, int(waited) / 1e9


def thread_cpu() -> dict[str, float]:
    """Processor seconds of the threads of this process by task."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    spent: dict[str, float] = {}
    for task in Path("/proc/self/task").iterdir():
        name = names.get(int(task.name), "other")
        part = "feed" if name.startswith("rocescope") else "ui"
        spent[part] = spent.get(part, 0.0) + int((task / "schedstat").read_text().split()[0]) / 1e9
    return spent


async def use(session: Session, rounds: int, live: bool) -> dict[str, Any]:
    """Open the app on a session and press keys; returns the measurements."""
    app = Watched(session)
    began = time.perf_counter()
    result: dict[str, Any] = {}
    async with app.run_test(size=SIZE) as pilot:
        while not app.view.snapshot.source.packets and time.perf_counter() - began < 120:
            await asyncio.sleep(0.01)
        result["first_s"] = time.perf_counter() - began
        if not live:
            while app.view.session.running or app.view.snapshot.source.running:
                await asyncio.sleep(0.05)
        else:
            await asyncio.sleep(SETTLE_S)
        result["dropped_at_start"] = app.view.snapshot.source.dropped
        await pilot.pause()
        cpu, paints, packets = thread_cpu(), app.paints, app.view.snapshot.source.packets
        start = time.perf_counter()
        await asyncio.sleep(WATCH_S)
        idle = time.perf_counter() - start
        now = thread_cpu()
        result["watching"] = {part: (now[part] - cpu.get(part, 0)) / idle for part in now}
        result["paints_per_s"] = (app.paints - paints) / idle
        took: dict[str, list[float]] = {}
        begin = time.perf_counter()
        for _ in range(rounds):
            for key in KEYS:
                milliseconds = await app.press(key)
                if milliseconds is not None:
                    took.setdefault(key, []).append(milliseconds)
                await asyncio.sleep(KEYS_EVERY_S)
        spent = time.perf_counter() - begin
        end = thread_cpu()
        result["pressing"] = {part: (end[part] - now.get(part, 0)) / spent for part in end}
        source = app.view.snapshot.source
        result["pps"] = (source.packets - packets) / (time.perf_counter() - start)
        result["flows"] = len(app.view.snapshot.flows)
        result["dropped"], result["frames"] = source.dropped, source.frames
        result["took"], result["computed"] = took, app.computed
        result["unhindered"] = app.unhindered
        result["snapshot_ms"] = snapshot_ms(session)
        result["parts"] = memory_parts(session)
    result["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return result


def run_headless(session: Session, rounds: int) -> dict[str, Any]:
    """The session alone for the duration of `use`: probe losses without a user interface."""
    while not session.snapshot().source.packets:
        time.sleep(0.05)
    time.sleep(SETTLE_S)
    before, start = session.snapshot().source, time.perf_counter()
    cpu = thread_cpu()
    time.sleep(WATCH_S + rounds * len(KEYS) * (KEYS_EVERY_S + 0.05))
    source = session.snapshot().source
    passed = time.perf_counter() - start
    now = thread_cpu()
    session.close()
    return {
        "pps": (source.packets - before.packets) / passed,
        "frames": source.frames,
        "dropped": source.dropped,
        "dropped_at_start": before.dropped,
        "watching": {part: (now[part] - cpu.get(part, 0)) / passed for part in now},
    }


def memory_parts(session: Session) -> dict[str, int]:
    """Bytes: of this process by kind, and of them the snapshots of the past."""
    lines = Path("/proc/self/status").read_text().splitlines()
    words = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Rss")}
    parts = {name: int(kilobytes) << 10 for name, kilobytes in words.items()}
    return {**parts, "history": session.history.nbytes}


def snapshot_ms(session: Session) -> float:
    """Milliseconds of one snapshot."""
    start = time.perf_counter()
    for _ in range(10):
        session.snapshot()
    return (time.perf_counter() - start) * 100


async def watch_opening(path: str) -> dict[str, Any]:
    """When a capture shows the first paint, and each count of packets while it is read."""
    began = time.perf_counter()
    app = Watched(Session.open([path]))
    shown: list[tuple[float, int]] = []
    async with app.run_test(size=SIZE):
        while app.view.session.running or app.view.snapshot.source.running:
            await asyncio.sleep(0.02)
            packets = app.view.snapshot.source.packets
            if packets and (not shown or packets != shown[-1][1]):
                shown.append((time.perf_counter() - began, packets))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    first_paint = app.first_paint_at - began
    return {"first_paint": first_paint, "shown": shown, "memory": memory << 10}


def percentile(values: list[float], share: float) -> float:
    """The quantile of the values at a share."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def report(result: dict[str, Any]) -> None:
    """Print the numbers."""
    everything = [value for values in result["took"].values() for value in values]
    print(f"{result['flows']:,} flows; first packets shown after {result['first_s']:.2f} s")
    print(
        f"key to paint: p50 {percentile(everything, 0.5):.1f} ms,"
        f" p95 {percentile(everything, 0.95):.1f} ms, most {max(everything):.1f} ms"
        f" of {len(everything)} keys"
    )
    for what, name in (
        ("unhindered", "without waiting for a processor that other processes had"),
        ("computed", "processor time of these keys and what else the thread did"),
    ):
        values = result[what]
        print(
            f"  p50 {percentile(values, 0.5):.1f} ms, p95 {percentile(values, 0.95):.1f} ms {name}"
        )
    slowest = sorted(result["took"].items(), key=lambda item: -percentile(item[1], 0.5))
    print("  median by key: " + ", ".join(f"{k} {percentile(v, 0.5):.0f}" for k, v in slowest))
    for what in ("watching", "pressing"):
        parts = ", ".join(f"{part} {share:.0%}" for part, share in sorted(result[what].items()))
        print(f"{what}: {parts} of a core")
    print(f"snapshot {result['snapshot_ms']:.1f} ms, {result['paints_per_s']:.1f} paints/s")
    parts = ", ".join(f"{name} {size / 1e6:.0f}" for name, size in result["parts"].items())
    print(f"peak memory {result['memory'] / 1e6:.0f} MB; at the end {parts} MB")
    if result["pps"]:
        print(f"{result['pps'] / 1e6:.2f} Mpkt/s, {result['frames']:,} frames seen")
        print(f"dropped by the probes: {result['dropped']:,}")


def child(arguments: list[str]) -> subprocess.Popen[str]:
    """This program again, as the process that is measured."""
    every = ",".join(map(str, range(os.cpu_count() or 1)))
    command = ["taskset", "--cpu-list", every, sys.executable, __file__, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def outcome(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a child found out: the last line it printed."""
    assert process.stdout is not None
    lines = process.stdout.read().splitlines()
    assert process.wait() == 0 and lines, "the measured process failed"
    found: dict[str, Any] = json.loads(lines[-1])
    return found


class Load:
    """The generator, which sends as fast as it can, or at most N frames per second."""

    def __init__(self, link: Link, rate: float | None) -> None:
        self._link, self._rate = link, rate
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def _send(self) -> None:
        chunk = 2_000_000 if self._rate is None else int(self._rate * PACED_EVERY_S)
        due = time.perf_counter()
        while not self._ending.is_set():
            self._link.send(chunk)
            due = max(due + PACED_EVERY_S, time.perf_counter() - PACED_EVERY_S)
            if self._rate is not None:
                self._ending.wait(max(0.0, due - time.perf_counter()))

    def __enter__(self) -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()


def live(options: argparse.Namespace) -> None:
    """The app on probes, while the generator sends."""
    with Link(options.connections * 2) as link, Load(link, options.rate):
        report(outcome(on_probes(link, options, screens=True)))


def on_probes(link: Link, options: argparse.Namespace, screens: bool) -> subprocess.Popen[str]:
    """A session on probes in a separate process."""
    arguments = ["use-live", f"{link.name}:right", "--rounds", str(options.rounds)]
    arguments += ["--record"] * options.record + ["--headless"] * (not screens)
    return child(arguments)


def losses(options: argparse.Namespace) -> None:
    """The probes with screens and without, in turn, under one load that never pauses."""
    print("session           Mpkt/s   frames seen      lost  of these at the start    %   ui core")
    sums = {True: [0, 0], False: [0, 0]}
    with Link(options.connections * 2) as link, Load(link, options.rate):
        for number in range(2 * options.pairs):
            screens = number % 2 == number // 2 % 2  # each way comes first as often
            found = outcome(on_probes(link, options, screens))
            frames, lost = found["frames"], found["dropped"]
            sums[screens][0] += frames
            sums[screens][1] += lost
            print(
                f"{_WITH[screens]:<16} {found['pps'] / 1e6:>7.2f} {frames:>13,} {lost:>9,}"
                f" {found['dropped_at_start']:>21,} {100 * lost / frames:>6.3f}"
                f" {found['watching'].get('ui', 0.0):>7.0%}",
                flush=True,
            )
    for screens, (frames, lost) in sums.items():
        print(f"{_WITH[screens]}: {lost:,} of {frames:,} frames lost ({100 * lost / frames:.4f} %)")


_WITH = {True: "with screens", False: "without screens"}


def start(path: str, rounds: int) -> None:
    """Time the command itself, on its own terminal."""
    for _ in range(rounds):
        first, cost = start_up([sys.executable, "-m", "rocescope", "tui", path])
        print(f"first paint {first:.2f} s, flows {cost.wall:.2f} s,", end=" ")
        print(f"{cost.cpu:.2f} s of processor time")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("path", nargs="?")
    parser.add_argument("--packets", type=int)
    parser.add_argument("--connections", type=int, default=5_000, help="each has two flows")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--headless", action="store_true", help="use-live: no screens")
    parser.add_argument("--record", action="store_true", help="live: recorded in a file too")
    parser.add_argument("--rate", type=float, help="live, losses: frames a second, else most")
    parser.add_argument("--pairs", type=int, default=3, help="losses: sessions of either kind")
    options = parser.parse_args()
    rounds = ["--rounds", str(options.rounds)]
    if options.what == "live":
        live(options)
    elif options.what == "losses":
        losses(options)
    elif options.what == "use-live":
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "record.pcapng"
            session = (
                open_recorded([options.path], None, file, attach_now=True)
                if options.record
                else open_live([options.path], LiveOptions(), attach_now=True)
            )
            if not session.running:
                session.start()
            found = (
                run_headless(session, options.rounds)
                if options.headless
                else asyncio.run(use(session, options.rounds, True))
            )
            print(json.dumps(found))
    elif options.what == "use":
        session = Session.open([options.path])
        print(json.dumps(asyncio.run(use(session, options.rounds, False))))
    elif options.what == "watch":
        print(json.dumps(asyncio.run(watch_opening(options.path))))
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "many.pcap"
            packets = options.packets or (2_000_000 if options.what == "capture" else 20_000_000)
            with path.open("wb") as file:
                write(file, packets, options.connections)
            if options.what == "capture":
                report(outcome(child(["use", str(path), *rounds])))
                return
            if options.what == "start":
                start(str(path), options.rounds)
                return
            found = outcome(child(["watch", str(path)]))
            shown = found["shown"]
            first, results = found["first_paint"], sum(at < 1 for at, _ in shown)
            print(
                f"{packets:,} packets; first paint {first:.2f} s, first result {shown[0][0]:.2f} s"
            )
            print(f"{results} results in the first second, {len(shown)} until {shown[-1][0]:.1f} s")
            print(f"peak memory {found['memory'] / 1e6:.0f} MB")
            print("the command itself, on a terminal of its own:")
            start(str(path), STARTS)


if __name__ == "__main__":
    main()
