"""Peak memory of `analyze --follow` while queue pairs come and go.

    python benchmarks/churn.py [MINUTES] [NEW_PAIRS_PER_MINUTE]

Writes a capture in which one queue pair of every pair sends a message of ten packets, one second
apart, the other answers with an ACK, and both fall silent; the packets span the minutes. The
command reads it as fast as it can, ends flows that are idle by those times, and is interrupted at
the end of the file.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

PACKETS = 10
"""Data packets of a queue pair; one ACK follows."""

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


def measured(minutes: int, per_minute: int) -> tuple[int, float, int]:
    """Peak bytes, seconds of processor time and ended flows of the command, which counts all."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "churn.pcap", Path(folder) / "out.json"
        # Linux counts the memory of a parent into the peak of its child: another child writes.
        write = [sys.executable, __file__, "--write", str(path), str(minutes), str(per_minute)]
        packets = int(subprocess.run(write, check=True, capture_output=True, text=True).stdout)
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
        result = json.loads(out.read_text())
    counted = result["ended"]["packets"] + sum(f["packets"] for f in result["flows"])
    assert counted == packets, f"{counted} of {packets} packets are in the result"
    cpu = usage.ru_utime + usage.ru_stime
    return usage.ru_maxrss * 1024, cpu, result["ended"]["flows"]


def main() -> None:
    minutes, per_minute = (int(a) for a in (*sys.argv[1:], "60", "5000")[:2])
    peak, cpu, ended = measured(minutes, per_minute)
    print(
        f"{minutes} minutes, {2 * per_minute:,} new queue pairs a minute: {ended} flows ended,"
        f" peak {peak / 1e6:.0f} MB, {cpu:.0f} s of processor time"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        print(write(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
    else:
        main()
