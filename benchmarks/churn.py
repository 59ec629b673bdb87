"""Peak memory of `analyze --follow`, `analyze --live` or `live` while queue pairs come and go.

    python benchmarks/churn.py [MINUTES] [NEW_PAIRS_PER_MINUTE] [follow|live|session]

Writes a capture in which one queue pair of every pair sends a message of ten packets, one second
apart, the other answers with an ACK, and both fall silent; the packets span the minutes. Of every
10,000th pair a packet is lost and never comes.

follow: the command reads the capture as fast as it can, ends flows that are idle by those times,
and is interrupted at the end. live: the analysis of `analyze --live`, whose packets come
from the capture instead of rings; an array as large as the default rings stands for these. session:
the same of the terminal user interface, with the copies for its screens.
"""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

PACKETS = 10
"""Data packets of a queue pair; one ACK follows."""

LOSSY_EVERY = 10_000
"""Of one queue pair in so many a packet is lost."""
RING_BYTES = 64 << 20
PACKETS_AT_ONCE = 2_000
"""Packets between two readings of the rings, some milliseconds to a second of them."""

_HEADERS = 14 + 20 + 8 + 12
_FRAME = _HEADERS + 64 + 4
_START_S = 1_700_000_000


def write(path: Path, minutes: int, per_minute: int) -> int:
    """The capture; how many packets it has."""
    pairs = minutes * per_minute
    pair = np.repeat(np.arange(pairs), PACKETS + 1)
    step = np.tile(np.arange(PACKETS + 1), pairs)
    time_us = pair * (60_000_000 // per_minute) + step * 1_000_000
    order = np.argsort(time_us, kind="stable")
    lost = (pair % LOSSY_EVERY == 0) & (step == PACKETS // 2)
    order = order[~lost[order]]
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for part in np.array_split(order, max(1, len(order) // 500_000)):
            out.write(_records(pair[part], step[part], time_us[part]))
    return len(order)


def _records(pair: np.ndarray, step: np.ndarray, time_us: np.ndarray) -> bytes:
    """Records of a pcap; queue pair n of 10.0.0.1 sends to queue pair n of 10.0.0.2."""
    answers = step == PACKETS
    record = np.zeros((len(pair), 16 + _FRAME), np.uint8)
    head = record[:, :16].view("<u4")
    head[:, 0], head[:, 1] = _START_S + time_us // 1_000_000, time_us % 1_000_000
    head[:, 2:] = _FRAME
    udp_bytes = _FRAME - 34
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + udp_bytes, 0, 0x4000, 64, 17, 0)
    fixed = bytes(12) + b"\x08\x00" + ip + bytes((10, 0, 0, 1, 10, 0, 0, 2))
    record[:, 16 : 16 + len(fixed)] = np.frombuffer(fixed, np.uint8)
    record[answers, 16 + 29], record[answers, 16 + 33] = 2, 1
    bth = np.zeros((len(pair), 20), np.uint8)
    bth[:, :8] = np.frombuffer(struct.pack(">HHHH", 50000, 4791, udp_bytes, 0), np.uint8)
    bth[:, 8] = np.where(answers, 17, np.select([step == 0, step == PACKETS - 1], [0, 2], 1))
    bth[:, 10:12] = 0xFF
    for place, shift in ((13, 16), (14, 8), (15, 0)):
        bth[:, place] = (pair + 0x100 >> shift) & 0xFF
    bth[:, 19] = np.minimum(step, PACKETS - 1)
    record[:, 16 + 34 : 16 + 54] = bth
    return record.tobytes()


def measured(minutes: int, per_minute: int, mode: str = "follow") -> tuple[int, float, int]:
    """Peak bytes, seconds of processor time and ended flows of an analysis that counts all."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "churn.pcap"
        # Linux counts the memory of a parent into the peak of its child: another child writes.
        itself = [sys.executable, __file__]
        write = [*itself, "--write", str(path), str(minutes), str(per_minute)]
        packets = int(subprocess.run(write, check=True, capture_output=True, text=True).stdout)
        if mode == "follow":
            result, peak, cpu = _followed(path, packets)
        else:
            child = [*itself, f"--{mode}", str(path)]
            said = subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout
            result, peak, cpu = json.loads(said)
    ended = result["ended"]
    counted = ended["packets"] + sum(f["packets"] for f in result["flows"])
    assert counted == packets, f"{counted} of {packets} packets are in the result"
    lossy = -(-minutes * per_minute // LOSSY_EVERY)
    listed = sum(f["missing_packets"] or 0 for f in result["flows"])
    assert (listed, ended["flows_in_trouble"]) == (lossy, 0), f"{listed} of {lossy} losses listed"
    return peak, cpu, ended["flows"]


def _followed(path: Path, packets: int) -> tuple[Any, int, float]:
    out = path.with_suffix(".json")
    command = ["analyze", "--follow", str(path), "-f", "json", "-o", str(out)]
    child = subprocess.Popen(
        [sys.executable, "-m", "rocescope", *command, "--progress", "json"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    for line in child.stderr:
        if json.loads(line)["packets"] == packets:
            break
    child.send_signal(signal.SIGINT)
    child.stderr.read()
    _, _, usage = os.wait4(child.pid, 0)
    return json.loads(out.read_text()), usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime


class Replayed:
    """A capture in place of the rings of a `LiveSource`."""

    def __init__(self, path: str, registry: Any) -> None:
        from rocescope.analyzer.capture.source import open_capture
        from rocescope.analyzer.decode.decoder import Decoder
        from rocescope.probes.rings import Loss

        self.registry, self.decoder = registry, Decoder(registry)
        self._capture = open_capture(path, registry.taps)
        self._rings = np.ones(RING_BYTES, np.uint8)
        self._loss = Loss
        self.others = SimpleNamespace(lines=list)
        self.options = SimpleNamespace(filter=None)
        self.interfaces = [SimpleNamespace(label="churn", namespace=None)]
        self.snapped_frames = self.clock_steps = 0
        self.waits: Callable[[], bool] = bool
        """Whether the reader has packets left to measure: those of an hour would all wait."""
        self._now_ns = _START_S * 10**9

    def tables(self) -> Iterator[Any]:
        with self._capture as capture:
            for frames in capture.batches():
                table = self.decoder.decode(frames)
                for part in range(0, len(table), PACKETS_AT_ONCE):
                    while self.waits():
                        time.sleep(0.001)
                    some = table.slice(part, min(part + PACKETS_AT_ONCE, len(table)))
                    self._now_ns = int(some.time_ns[-1])
                    yield some

    def clock(self) -> Any:
        """A module `time` in which time passes with the packets, for looks at idle flows."""
        return SimpleNamespace(
            monotonic=lambda: self._passed_ns() / 1e9,
            monotonic_ns=self._passed_ns,
            time_ns=self._passed_ns,
            thread_time=time.thread_time,
        )

    def _passed_ns(self) -> int:
        self._now_ns += 1
        return self._now_ns

    def loss(self) -> Any:
        return self._loss(seen=self.decoder.counters.frames())

    def gone(self) -> list[Any]:
        return []

    def finish(self) -> None:
        """Nothing is left in rings."""

    resume = pause = state_losses = finish


def _live(path: str) -> Any:
    """The result of `analyze --live`."""
    from rocescope.analyzer.pipeline.threads import give_back_large_arrays
    from rocescope.probes import live_analysis
    from rocescope.probes.live import LiveOptions
    from rocescope.probes.live_analysis import LiveAnalysis, warm_up

    live = LiveAnalysis(["lo"], LiveOptions())
    source: Any = Replayed(path, live.pipeline.registry)
    live.source = live.pipeline.source = source
    live_analysis.time = source.clock()
    live._ports = []
    give_back_large_arrays()
    warm_up(live.pipeline.options.window_ns)
    live.run(lambda _interval: None)
    return live.result()


def _session(path: str) -> Any:
    """The result of a live session of the terminal user interface, drawn as often as it is."""
    from rocescope.analyzer.pipeline.options import AnalyzeOptions
    from rocescope.analyzer.pipeline.threads import give_back_large_arrays
    from rocescope.analyzer.wire.registry import MOST_ADDRESSES, Endpoints, Registry
    from rocescope.probes import live_analysis
    from rocescope.tui.session.live import LiveFeed
    from rocescope.tui.session.session import Session

    registry = Registry(Endpoints(most=MOST_ADDRESSES))
    source = Replayed(path, registry)
    probes: Any = SimpleNamespace(
        registry=registry, source=source, begin=lambda: None, reading=nullcontext,
        owners=lambda _tracker: None, warnings=tuple,
    )  # fmt: skip

    def feed(keep: str | None) -> Any:
        live_analysis.time = source.clock()
        made = LiveFeed(probes, AnalyzeOptions(filter=keep))
        source.waits = lambda: made.backlog() > 0  # time passes with the packets that are measured
        return made

    give_back_large_arrays()
    session = Session(feed, "churn", "live")
    session.start()
    while not session.wait(0.05):
        session.snapshot()
    try:
        return session.analysis()
    finally:
        session.close()


def _in_this_process(result: Any) -> str:
    """The result of an analysis that has run here, peak bytes and seconds of processor time."""
    import msgspec

    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s*(\d+)", status)
    assert found is not None
    flows = [{"packets": f.packets, "missing_packets": f.missing_packets} for f in result.flows]
    summary = {"ended": msgspec.to_builtins(result.ended), "flows": flows}
    return json.dumps([summary, int(found[1]) * 1024, time.process_time()])


def main() -> None:
    minutes, per_minute, mode = (*sys.argv[1:], *("60", "5000", "follow")[len(sys.argv) - 1 :])
    peak, cpu, ended = measured(int(minutes), int(per_minute), mode)
    print(
        f"{minutes} minutes, {2 * int(per_minute):,} new queue pairs a minute: {ended} flows ended,"
        f" peak {peak / 1e6:.0f} MB, {cpu:.0f} s of processor time"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        print(write(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
    elif sys.argv[1:2] == ["--live"]:
        print(_in_this_process(_live(sys.argv[2])))
    elif sys.argv[1:2] == ["--session"]:
        print(_in_this_process(_session(sys.argv[2])))
    else:
        main()
