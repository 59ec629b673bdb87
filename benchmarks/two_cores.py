"""Twelve taps on one core and on two: wall time of `rocescope analyze`, alternately.

`python benchmarks/two_cores.py [MESSAGES]` makes the captures of four hosts on two leaves with four
spines: 64 queue pairs with MESSAGES (default 6000) messages of 1 MiB at 10G, 3,264 passages of
packets per message. Every packet is at each link of its way, 2.5 us and more after the link before.
Two analyses side by side, each on a core of its own, tell what the machine's second core is worth.
"""

from __future__ import annotations

import heapq
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import dpkt
from measure import CommandFailed, run

ROUNDS = 3
LEAST = 1.7
COMMAND = sys.executable, "-m", "rocescope"
_ETHERNET, _IP_LENGTH, _HOP_LIMIT, _SOURCE, _DESTINATION, _PORT = 14, 16, 22, 29, 33, 34
"""Where they are in the frame; of the addresses, the last octets."""
_HOP_NS = 2500


def way(frame: bytes) -> list[str]:
    """The links from the host of the source to that of the destination."""
    source, destination = frame[_SOURCE] % 4, frame[_DESTINATION] % 4
    near, far = source // 2 + 1, destination // 2 + 1
    links = [f"H{source + 1}-leaf{near}"]
    if near != far:
        spine = int.from_bytes(frame[_PORT : _PORT + 2], "big") % 4 + 1
        links += [f"leaf{near}-spine{spine}", f"leaf{far}-spine{spine}"]
    return [*links, f"H{destination + 1}-leaf{far}"]


class Tap:
    """The capture of one link; packets come in order of their sending, not of their passing."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        dpkt.pcap.Writer(self._file, nano=True)
        self._waiting: list[tuple[int, bytes]] = []

    def passes(self, time_ns: int, frame: bytes) -> None:
        """A packet is on the link at this time."""
        heapq.heappush(self._waiting, (time_ns, frame))

    def write(self, until_ns: int) -> None:
        """Write what passed until then: no earlier packet follows."""
        while self._waiting and self._waiting[0][0] <= until_ns:
            time_ns, frame = heapq.heappop(self._waiting)
            (ip_bytes,) = struct.unpack_from("!H", frame, _IP_LENGTH)
            head = struct.pack("<4I", *divmod(time_ns, 10**9), len(frame), _ETHERNET + ip_bytes)
            self._file.write(head + frame)

    def close(self) -> None:
        """No more packets follow."""
        self.write(2**63)
        self._file.close()


def make_taps(folder: Path, messages: int) -> list[str]:
    """One capture per link."""
    sent = folder / "sent"
    options = f"--hosts 4 --qps 16 --rate 10G --messages {messages} -o {sent}"
    subprocess.run([*COMMAND, "generate", "permutation", *options.split()], check=True)
    taps: dict[str, Tap] = {}
    with sent.open("rb") as file:
        for stamp, whole in dpkt.pcap.Reader(file):
            frame, time_ns = bytearray(whole), int(stamp * 10**9)
            for hop, link in enumerate(way(whole)):
                frame[_HOP_LIMIT] = 64 - hop
                tap = taps.get(link) or taps.setdefault(link, Tap(folder / f"{link}.pcap"))
                tap.passes(time_ns + hop * (_HOP_NS + time_ns % 256), bytes(frame))
                tap.write(time_ns)
    sent.unlink()
    for tap in taps.values():
        tap.close()
    return sorted(str(path) for path in folder.iterdir())


def side_by_side(command: Sequence[str]) -> float:
    """Wall time of two runs at once, each on one core."""
    start = time.perf_counter()
    runs = [
        subprocess.Popen(["taskset", "--cpu-list", str(core), *command], stdout=subprocess.DEVNULL)
        for core in sorted(os.sched_getaffinity(0))[:2]
    ]
    ended = [one.wait() for one in runs]
    if any(ended):
        raise CommandFailed(" ".join(command))
    return time.perf_counter() - start


def main(messages: int) -> int:
    """Print the ratio; 1 when it is below what is asked."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        paths = make_taps(Path(folder), messages)
        command = [*COMMAND, "analyze", *paths, "--brief"]
        run(command)  # compiles and fills caches
        rounds = [
            (run(command, one_core=True).wall, run(command).wall, side_by_side(command))
            for _ in range(ROUNDS)
        ]
    ratios = [one / two for one, two, _ in rounds]
    ratio = statistics.median(ratios)
    second = statistics.median(2 * one / both for one, _, both in rounds)
    print(
        f"12 taps, {messages * 3264:,} passages: two cores are"
        f" {ratio:.2f} times as fast as one ({min(ratios):.2f} to {max(ratios):.2f});"
        f" two processes side by side do {second:.2f} times the work of one"
    )
    return int(ratio < LEAST)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 6000))
