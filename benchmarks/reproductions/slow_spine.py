"""A real queue: what a rate-limited port of a Linux router did, and what the engine makes of it.

    python benchmarks/reproductions/slow_spine.py

In the run `tests/data/whole_leafspine/r09_packet_spray_h1` the port of spine2 to leaf2 was limited
to 25 Mb/s by a token bucket filter (`tbf rate 25Mbit burst 4Kb latency 127ms`), whose queue holds
rate * latency + burst bytes (tc-tbf(8)). H1 sprays over all spines, H2 uses ECMP, and both share
this port. Every frame that was captured on its way into spine2 is offered at its time, those that
hosts retransmitted too, and beside the captures before and after spine2 stand the engine's times
and drops.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from bands import Bands

import rocescope
from rocescope.kernels.kernel import Array, Bools, Ints
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.model.model import PS, TAIL, Model, Workload
from rocescope.replay.packets.offers.collectives import collective
from rocescope.replay.packets.run import run_packets
from rocescope.replay.strategies.registry import parse_packet_strategy

RUN = Path(__file__).resolve().parents[2] / "tests/data/whole_leafspine/r09_packet_spray_h1"
RATE_BITS, LATENCY_S, BURST = 25_000_000, 0.127, 4096
LIMIT = int(RATE_BITS / 8 * LATENCY_S) + BURST
COUNTED = 609
"""Frames that the router dropped by its own counter (tests/data/README.md)."""
COLUMNS = ["time_ns", "src", "dst", "ip_id", "opcode", "dest_qp", "psn", "wire_bytes"]
IDENTITY = ["src", "dst", "ip_id", "opcode", "dest_qp", "psn"]


class Frames(NamedTuple):
    """Frames that enter the port, in order."""

    time_ns: Ints
    bytes: Array
    left_ns: Ints
    """Seen after the port; -1: never."""


def main() -> None:
    frames = entering()
    lost = frames.left_ns < 0
    late, dropped = replayed(frames)
    waited = frames.left_ns - frames.time_ns
    both = ~lost & ~dropped
    print(f"{len(lost):,} frames, {frames.bytes.sum() / 1e6:.2f} MB; queue of {LIMIT:,} B")
    print(f"{'':26}{'observed':>12}{'replayed':>12}")
    rows = {"frames dropped": (float(lost.sum()), float(dropped.sum()))}
    for name, share in (("median", 50), ("99th percentile", 99), ("longest", 100)):
        of = [float(np.percentile(x[both], share)) / 1e6 for x in (waited, late)]
        rows[f"wait, {name}, ms"] = of[0], of[1]
    ends = [float((frames.time_ns + x)[both].max()) / 1e6 for x in (waited, late)]
    rows["last frame leaves, ms"] = ends[0], ends[1]
    for name, (seen, ours) in rows.items():
        print(f"{name:26}{seen:12,.1f}{ours:12,.1f}")
    same = int((lost & dropped).sum())
    print(f"{same} of the {int(lost.sum())} dropped frames are dropped in both")
    off = np.abs(late - waited)[both] / 1e6
    median, most = np.percentile(off, (50, 99))
    print(f"difference per frame: median {median:.2f} ms, 99 % {most:.2f} ms")
    bands = Bands()
    bands.holds(f"the captures miss the {COUNTED} frames of the counter", lost.sum() == COUNTED)
    for name, (seen, ours) in rows.items():
        bands.within(f"{name}: replayed over observed", ours / seen, 0.95, 1.05)
    bands.end()


def entering() -> Frames:
    """The frames from leaf1 to spine2, and when they arrived at leaf2."""
    before, after = (table(f"{leaf}-spine2.pcap.xz") for leaf in ("leaf1", "leaf2"))
    left = {identity(after, row): int(after["time_ns"][row]) for row in range(len(after["psn"]))}
    begin, rows = int(before["time_ns"][0]), range(len(before["psn"]))
    return Frames(
        before["time_ns"] - begin,
        before["wire_bytes"].astype(np.int64),
        np.array([left.get(identity(before, row), begin - 1) for row in rows]) - begin,
    )


def table(name: str) -> dict[str, Array]:
    """Columns of the frames that go to the hosts of leaf2."""
    batches = list(rocescope.packets(RUN / name, columns=COLUMNS))
    columns = {
        key: np.concatenate([np.array(batch.column(key).to_pylist()) for batch in batches])
        for key in COLUMNS
    }
    to_leaf2 = np.char.startswith(columns["dst"].astype(str), "10.2.")
    return {key: column[to_leaf2] for key, column in columns.items()}


def identity(frames: dict[str, Array], row: int) -> tuple[object, ...]:
    return tuple(frames[key][row] for key in IDENTITY)


def replayed(frames: Frames) -> tuple[Ints, Bools]:
    """(ns from its offer until each frame is at leaf2, whether the port dropped it)."""
    fabric = parse_fabric(
        f"leaf-spine:leaves=2,spines=1,hosts=1,rate=10G,delay=10us,slow=leaf2-spine1:{RATE_BITS}"
    )
    model = Model(buffer_bytes=LIMIT, drop=TAIL, jitter=0.0)
    one = collective("permutation", fabric, model, 4096, 1)
    rows = slice(0, 1)
    workload: Workload = one._replace(
        src=np.array([0], np.int32),
        dst=np.array([1], np.int32),
        flow=one.flow[rows],
        flow_start=one.flow_start[:2],
        packets=np.array([len(frames.bytes)]),
        packet_start=np.array([0, len(frames.bytes)]),
        packet_bytes=np.array([int(frames.bytes.max())]),
        last_bytes=np.array([int(frames.bytes[-1])]),
        release_ps=one.release_ps[rows],
        after=one.after[rows],
        on=one.on[rows],
        phase=one.phase[rows],
        due_ps=frames.time_ns * PS,
        wire_bytes=frames.bytes.astype(np.int32),
    )
    found = run_packets(
        workload, fabric, parse_packet_strategy("switch-random"), model, 1, keep_arrivals=True
    )
    assert found.arrived_ps is not None
    dropped = found.arrived_ps < 0
    assert int(found.link_drops.sum()) == int(dropped.sum())
    return found.arrived_ps // PS - frames.time_ns, dropped


if __name__ == "__main__":
    main()
