"""How fast the terminal UI is: key to paint, CPU and snapshots with many queue pairs.

Drives the real app without a terminal: `python benchmarks/tui_speed.py --connections 5000`.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from pathlib import Path

from generate import write

from rocescope.tui.app import RocescopeApp
from rocescope.tui.session import Session

KEYS = ("j", "j", "k", "pagedown", "s", "S", "2", "1", "3", "1", "p", "a", "a")


def percentile(values: list[float], share: float) -> float:
    """The value below which a share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def key_to_paint(app: RocescopeApp, rounds: int) -> tuple[list[float], float]:
    """Milliseconds from each key to the last paint it causes, and seconds to the first packets."""
    took = []
    async with app.run_test(size=(160, 50)) as pilot:
        began = time.perf_counter()
        while not app.snapshot.source.packets:
            await pilot.pause(0.01)
        first = time.perf_counter() - began
        while app.session.running or app.snapshot.source.running:
            await pilot.pause(0.05)
        painted = [0.0]
        display = app._display

        def note(*arguments: object) -> None:
            display(*arguments)
            painted[0] = time.perf_counter()

        app._display = note
        for _ in range(rounds):
            for key in KEYS:
                start = time.perf_counter()
                await pilot.press(key)  # returns when nothing is left to paint
                took.append((painted[0] - start) * 1e3)
    return [t for t in took if t > 0], first


def snapshots(session: Session, count: int) -> tuple[float, float]:
    """Milliseconds of one snapshot, and percent of a core at four a second."""
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    for _ in range(count):
        session.snapshot()
    after, took = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - start
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took / count * 1e3, cpu / count * 4 * 100


def main() -> None:
    """Print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packets", type=int, default=2_000_000)
    parser.add_argument("--connections", type=int, default=5_000, help="each has two flows")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "many.pcap"
        with path.open("wb") as file:
            write(file, options.packets, options.connections)
        took, first = asyncio.run(
            key_to_paint(RocescopeApp(Session.open([str(path)])), options.rounds)
        )
        session = Session.open([str(path)])
        session.start()
        session.wait()
        one, cpu = snapshots(session, 20)
        flows = len(session.snapshot().flows)
        session.close()
    print(f"{flows:,} flows, {options.packets:,} packets")
    print(f"first packets shown after {first:.2f} s")
    print(f"key to paint: p50 {percentile(took, 0.5):.1f} ms, p95 {percentile(took, 0.95):.1f} ms")
    print(f"snapshot: {one:.1f} ms, four a second take {cpu:.0f} % of a core")


if __name__ == "__main__":
    main()
