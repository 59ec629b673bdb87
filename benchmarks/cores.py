"""What more cores can give: the stages of one process, and the tasks of a cluster on N workers.

`python benchmarks/cores.py [COPIES]` takes the twelve captures of a bundled leaf-spine run and one
of them, with COPIES of every packet (default 8), each between hosts of its own. All figures come
from processor time, so another load of the machine matters little. The stages of one process run
side by side: no number of cores makes it faster than its longest stage and what follows it. Tasks
are placed on simulated workers as in a run, the largest first; the start of processes and disks are
left out.
"""

from __future__ import annotations

import heapq
import lzma
import os
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import dpkt
from taps import BUNDLED

from rocescope.analyzer.pipeline.captures import open_captures
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.cluster.merge import merge
from rocescope.cluster.reduce import reduce_partition
from rocescope.cluster.split import map_capture
from rocescope.cluster.work import Work, make_plan, write_plan

T = TypeVar("T")
WORKERS = 1, 2, 4, 8, 16
_ETHERNET_BYTES, _SOURCE, _DESTINATION = 14, 13, 17
"""Where the second octets of IPv4 addresses are, behind the Ethernet header."""


def copied(path: Path, folder: Path, copies: int) -> str:
    """A capture with copies of every IPv4 packet in the place of each."""
    out = folder / path.stem
    with lzma.open(path) as file, out.open("wb") as written:
        reader = dpkt.pcap.Reader(file)
        writer = dpkt.pcap.Writer(written, snaplen=reader.snaplen, nano=True)
        for stamp, frame in reader:
            if struct.unpack_from("!H", frame, 12)[0] != dpkt.ethernet.ETH_TYPE_IP:
                continue
            changed = bytearray(frame)
            for number in range(copies):
                for place in (_SOURCE, _DESTINATION):
                    at = _ETHERNET_BYTES + place
                    changed[at] = (frame[at] + number) % 256
                writer.writepkt(bytes(changed), float(stamp))
    return str(out)


class Stages:
    """Processor time of the stages of one process, in seconds."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.spent = dict.fromkeys(("decode", "track", "follow", "conclude"), 0.0)
        with open_captures(paths, AnalyzeOptions()) as run:
            tables, tracked, hops = run._tables, run._tracked, run.measuring.hops
            run._tables = lambda: self.each("decode", tables())  # type: ignore[method-assign]
            run._tracked = lambda decoded: self.each("track", tracked(decoded))  # type: ignore[method-assign]
            hops.prepared = self.timed("track", hops.prepared)  # type: ignore[method-assign]
            hops.follow = self.timed("follow", hops.follow)  # type: ignore[method-assign]
            complete = run.read(alone=True)
            self.packets, self.flows = run.packets, len(run.measuring.tracker)
            self.timed("conclude", run.conclude)(complete)

    def timed(self, stage: str, call: Callable[..., T]) -> Callable[..., T]:
        """Count what the calls of one thread take."""

        def counted(*arguments: Any) -> T:
            begun = time.thread_time()
            try:
                return call(*arguments)
            finally:
                self.spent[stage] += time.thread_time() - begun

        return counted

    def each(self, stage: str, items: Iterator[T]) -> Iterator[T]:
        """Count what the items take, each in one thread."""
        following: Callable[[], Any] = self.timed(stage, lambda: next(items, self))
        while (item := following()) is not self:
            yield item

    @property
    def whole(self) -> float:
        """All stages."""
        return sum(self.spent.values())

    def __str__(self) -> str:
        *beside, conclude = self.spent.values()
        every = self.whole
        most = every / (max(beside) + conclude)
        two = every / (max(*beside, sum(beside) / 2) + conclude)
        return (
            f"{self.packets} packets, {self.flows} flows: decode {self.spent['decode']:.2f} s,"
            f" track and measure {self.spent['track']:.2f} s, follow {self.spent['follow']:.2f} s,"
            f" conclude {conclude:.2f} s; at most {two:.2f} times one core on two,"
            f" {most:.2f} times on any number"
        )


def spent(task: Callable[[], object]) -> float:
    """Processor time of a task in seconds."""
    begun = time.process_time()
    task()
    return time.process_time() - begun


def placed(tasks: Iterable[float], workers: int) -> float:
    """When the last of these tasks ends."""
    busy = [0.0] * workers
    for task in sorted(tasks, reverse=True):
        heapq.heappush(busy, heapq.heappop(busy) + task)
    return max(busy)


def simulated(paths: Sequence[str], partitions: int, folder: str) -> tuple[float, float, float]:
    """Time of the stages map, reduce and merge on as many workers as partitions."""
    write_plan(Work(folder), make_plan(paths, AnalyzeOptions(), partitions))
    maps = [spent(lambda n=n: map_capture(folder, n)) for n in range(len(paths))]  # type: ignore[misc]
    reduces = [spent(lambda n=n: reduce_partition(folder, n)) for n in range(partitions)]  # type: ignore[misc]
    last = spent(lambda: merge(folder))
    return placed(maps, partitions), placed(reduces, partitions), last


def main(copies: int) -> int:
    """Print both cases."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as name:
        folder = Path(name)
        (folder / "captures").mkdir()
        taps = [copied(path, folder / "captures", copies) for path in sorted(BUNDLED.glob("*.xz"))]
        largest = max(taps, key=os.path.getsize)
        for title, paths in (("12 taps", taps), ("one file", [largest])):
            Stages(paths)  # compiles and fills caches
            stages = Stages(paths)
            print(f"{title}: {stages}")
            simulated(paths, 2, str(folder / f"{title} warm"))
            whole = stages.whole
            for workers in WORKERS:
                parts = simulated(paths, workers, str(folder / f"{title} {workers}"))
                print(
                    f"  {workers:2} workers: map {parts[0]:.2f} s, reduce {parts[1]:.2f} s, merge"
                    f" {parts[2]:.2f} s: {whole / sum(parts):.2f} times one process on one core"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8))
