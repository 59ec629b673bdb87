"""Frames at a port of a Linux router whose rate and queue are known: captured, and replayed.

Every frame that was captured on its way into the port is offered to a queue of the engine at its
time, those that hosts retransmitted too.
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
from rocescope.replay.packets.offers import collective
from rocescope.replay.packets.runs import run_packets
from rocescope.replay.strategies.registry import parse_packet_strategy

DATA = Path(__file__).resolve().parents[2] / "tests/data"
COLUMNS = ["time_ns", "src", "dst", "ip_id", "opcode", "dest_qp", "psn", "wire_bytes"]
IDENTITY = ["src", "dst", "ip_id", "opcode", "dest_qp", "psn"]


class Frames(NamedTuple):
    """Frames that enter the port, in order."""

    table: dict[str, Array]
    time_ns: Ints
    """Since the first one."""
    bytes: Ints
    left_ns: Ints
    """Seen after the port; -1: never."""


def table(path: Path, to: str) -> dict[str, Array]:
    """Columns of the frames to addresses that begin with `to`."""
    batches = list(rocescope.packets(path, columns=COLUMNS))
    columns = {
        key: np.concatenate([np.array(batch.column(key).to_pylist()) for batch in batches])
        for key in COLUMNS
    }
    wanted = np.char.startswith(columns["dst"].astype(str), to)
    return {key: column[wanted] for key, column in columns.items()}


def frames(before: list[dict[str, Array]], after: dict[str, Array]) -> Frames:
    """The frames of the taps before the port, and when the tap after it saw them."""
    whole = {key: np.concatenate([one[key] for one in before]) for key in COLUMNS}
    order = np.argsort(whole["time_ns"], kind="stable")
    whole = {key: column[order] for key, column in whole.items()}
    left = {_identity(after, row): int(after["time_ns"][row]) for row in range(len(after["psn"]))}
    begin, rows = int(whole["time_ns"][0]), range(len(order))
    return Frames(
        whole,
        whole["time_ns"] - begin,
        whole["wire_bytes"].astype(np.int64),
        np.array([left.get(_identity(whole, row), begin - 1) for row in rows]) - begin,
    )


def _identity(rows: dict[str, Array], row: int) -> tuple[object, ...]:
    return tuple(rows[key][row] for key in IDENTITY)


def replayed(entering: Frames, rate_bits: int, limit: int) -> Ints:
    """When each frame is through the port in the engine, on the clock of the frames; -1: dropped.
    limit: bytes of the queue."""
    fabric = parse_fabric(
        f"leaf-spine:leaves=2,spines=1,hosts=1,rate=10G,delay=10us,slow=leaf2-spine1:{rate_bits}"
    )
    model = Model(buffer_bytes=limit, drop=TAIL, jitter=0.0)
    one = collective("permutation", fabric, model, 4096, 1)
    rows = slice(0, 1)
    workload: Workload = one._replace(
        src=np.array([0], np.int32),
        dst=np.array([1], np.int32),
        flow=one.flow[rows],
        flow_start=one.flow_start[:2],
        packets=np.array([len(entering.bytes)]),
        packet_start=np.array([0, len(entering.bytes)]),
        packet_bytes=np.array([int(entering.bytes.max())]),
        last_bytes=np.array([int(entering.bytes[-1])]),
        release_ps=one.release_ps[rows],
        after=one.after[rows],
        on=one.on[rows],
        phase=one.phase[rows],
        due_ps=entering.time_ns * PS,
        wire_bytes=entering.bytes.astype(np.int32),
    )
    found = run_packets(
        workload, fabric, parse_packet_strategy("switch-random"), model, 1, keep_arrivals=True
    )
    assert found.arrived_ps is not None
    dropped: Bools = found.arrived_ps < 0
    assert int(found.link_drops.sum()) == int(dropped.sum())
    return np.where(dropped, -1, found.arrived_ps // PS)


def compared(
    entering: Frames, ours_ns: Ints, limit: int, counted: int, bands: Bands, band: float
) -> None:
    """Print drops and waits, and check that the replayed are the observed ones within the band.
    counted: drops by the router's counter."""
    lost, dropped = entering.left_ns < 0, ours_ns < 0
    waited, late = entering.left_ns - entering.time_ns, ours_ns - entering.time_ns
    both = ~lost & ~dropped
    total = entering.bytes.sum() / 1e6
    print(f"{len(lost):,} frames, {total:.2f} MB; queue of {limit:,} B")
    print(f"{'':28}{'observed':>12}{'replayed':>12}")
    rows = {"frames dropped": (float(lost.sum()), float(dropped.sum()))}
    for name, share in (("median", 50), ("99th percentile", 99), ("longest", 100)):
        of = [float(np.percentile(x[both], share)) / 1e6 for x in (waited, late)]
        rows[f"wait, {name}, ms"] = of[0], of[1]
    ends = [float(x[both].max()) / 1e6 for x in (entering.left_ns, ours_ns)]
    rows["last frame leaves, ms"] = ends[0], ends[1]
    for name, (seen, ours) in rows.items():
        print(f"{name:28}{seen:12,.1f}{ours:12,.1f}")
        bands.within(f"{name}: replayed over observed", ours / seen, 1 - band, 1 + band)
    same = int((lost & dropped).sum())
    print(f"{same} of the {int(lost.sum())} dropped frames are dropped in both")
    median, most = np.percentile(np.abs(late - waited)[both] / 1e6, (50, 99))
    print(f"difference per frame: median {median:.2f} ms, 99 % {most:.2f} ms")
    bands.holds(f"the captures miss the {counted} frames of the counter", lost.sum() == counted)
