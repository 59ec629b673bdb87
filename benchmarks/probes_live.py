"""Live capture beside tcpdump at the generator's full rate: `sudo python probes_live.py`.

All watch the same veth interface, in turn, keep 128 bytes of each frame, and write to
the same place, /dev/null unless given. CPU time is that of the capturing process,
user and system, from before the first frame until a second after the last; starting
and ending are in neither. What the kernel does for each packet as it arrives is in
nobody's CPU time but shows in the rate that is reached. The row "to tables" decodes
into packet tables and checks every PSN of every flow.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from probes_generator import FLOWS, Link

from rocescope.probes.live import LiveOptions, LiveSource

_SETTLE_S = 1.0


@dataclass(frozen=True)
class Result:
    """One run of one tool."""

    rate: float
    captured: int
    lost: int
    cpu_s: float


class Tool:
    """A capturing process."""

    def __init__(self, command: list[str], ready: str, report: Callable[[str], tuple[int, int]]):
        self._command = command
        self._ready = ready
        self._report = report

    def run(self, link: Link, frames: int) -> Result:
        """Start it, send, let it catch up, end it."""
        process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            while self._ready not in process.stderr.readline():
                assert process.poll() is None, self._command
            time.sleep(0.2)
            before = cpu_seconds(process.pid)
            sent = link.send(frames)
            time.sleep(_SETTLE_S)
            used = cpu_seconds(process.pid) - before
            process.send_signal(signal.SIGINT)
            captured, lost = self._report(process.stderr.read())
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)
        return Result(sent.rate, captured, lost, used)


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads of a process so far, which the scheduler knows to the ns."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _tcpdump_report(text: str) -> tuple[int, int]:
    captured = re.search(r"(\d+) packets captured", text)
    dropped = re.search(r"(\d+) packets dropped by kernel", text)
    assert captured and dropped, text
    return int(captured[1]), int(dropped[1])


def _capture_report(text: str) -> tuple[int, int]:
    found = re.search(r"(\d+) packets written, .* (\d+) lost", text)
    assert found, text
    return int(found[1]), int(found[2])


def _tables_report(text: str) -> tuple[int, int]:
    result = json.loads(text.splitlines()[-1])
    assert result["psns_right"], "a PSN is missing or came twice"
    return result["packets"], result["lost"]


def consume(interface: str, hook: str, frames: int) -> None:
    """Decode until interrupted; returns whether every PSN arrived exactly once."""
    seen = np.zeros((FLOWS, frames // FLOWS + 1), np.uint8)
    packets = 0
    with LiveSource([interface], LiveOptions(hook=hook)) as source:
        signal.signal(signal.SIGINT, lambda *_: source.stop())
        print("ready", file=sys.stderr, flush=True)
        for table in source.tables():
            packets += len(table)
            np.add.at(seen, (table.dest_qp & 0xFF, table.psn), 1)
        lost = source.loss().ring_full
    expected = np.zeros_like(seen)
    numbers = np.arange(frames)
    expected[numbers % FLOWS, numbers // FLOWS] = 1
    missing = int(np.count_nonzero(seen != expected))
    right = missing == lost and packets + lost == frames
    print(
        json.dumps({"packets": packets, "lost": lost, "psns_right": right}),
        file=sys.stderr,
        flush=True,
    )


def tools(link: Link, frames: int, file: str) -> dict[str, Tool]:
    """What is compared."""
    inside = ["ip", "netns", "exec", link.name, "taskset", "-c", "1"]
    python = ["taskset", "-c", "1", sys.executable]
    interface = f"{link.name}:right"
    found = {}
    for hook in ("tc", "xdp"):
        capture = ["-m", "rocescope", "capture", interface, "--hook", hook, "-w", file]
        found[f"capture --hook {hook}"] = Tool([*python, *capture], "capturing", _capture_report)
    consumer = [__file__, "--consume", interface, "--frames", str(frames)]
    found["to tables, tc"] = Tool([*python, *consumer], "ready", _tables_report)
    for name, options in (("tcpdump -s 128", []), ("tcpdump -s 128 -B 65536", ["-B", "65536"])):
        dump = ["tcpdump", "-n", "-s", "128", *options, "-w", file, "-i", "right"]
        command = [*inside, *dump, "udp", "port", "4791"]
        found[name] = Tool(command, "listening", _tcpdump_report)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", default="/dev/null", metavar="FILE")
    parser.add_argument("--consume")
    parser.add_argument("--hook", default="tc")
    arguments = parser.parse_args()
    if arguments.consume:
        consume(arguments.consume, arguments.hook, arguments.frames)
        return
    os.sched_setaffinity(0, {0})
    with Link() as link:
        nothing = [link.send(arguments.frames).rate for _ in range(arguments.rounds)]
        print(f"{'nobody captures':26} {statistics.median(nothing) / 1e6:5.2f} Mpps sent")
        compared = tools(link, arguments.frames, arguments.write)
        results: dict[str, list[Result]] = {name: [] for name in compared}
        for _ in range(arguments.rounds):
            for name, tool in compared.items():
                results[name].append(tool.run(link, arguments.frames))
    beside = statistics.median(run.cpu_s for run in results["tcpdump -s 128"])
    for name, runs in results.items():
        rate = statistics.median(run.rate for run in runs) / 1e6
        cpu = statistics.median(run.cpu_s for run in runs)
        lost = " ".join(str(arguments.frames - run.captured) for run in runs)
        said = " ".join(str(run.lost) for run in runs)
        print(
            f"{name:26} {rate:5.2f} Mpps, {1e3 * cpu:4.0f} ms CPU,"
            f" {cpu / beside:4.2f} of tcpdump's,"
            f" not captured {lost} (said {said})"
        )


if __name__ == "__main__":
    main()
