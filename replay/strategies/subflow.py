"""Subflows: every queue pair is split into k with separate entropy (QP scaling, MPTCP).

The bytes of a unit are split evenly; subflow 0 keeps its header fields, subflow j has
queue pair number + j and a random source port from 49152 to 65535.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...kernels.kernel import Array, Ints
from ..fabrics.fabric import Fabric
from ..packets.model.draws import generator
from ..traffic.traffic import Traffic, Windows
from .base import FlowStrategy, Outcome
from .ecmp import Ecmp, Hashed

_FIRST_PORT = 49_152


class Subflow(Hashed, FlowStrategy):
    """Options: `k` subflows (4), `draw`, the seed of the ports (0), and those of ecmp."""

    name = "subflow"

    def place(self, traffic: Traffic, fabric: Fabric) -> Outcome:
        k = self.whole("k", 4, 1, 1024)
        draw = self.whole("draw", 0, 0, 1 << 31)
        rest = {key: v for key, v in self.options.items() if key not in ("k", "draw")}
        outcome = Ecmp(rest, self.name).place(split(traffic, k, draw), fabric)
        return outcome._replace(
            parameters={"k": str(k), "draw": str(draw), **outcome.parameters},
            origin=np.repeat(np.arange(len(traffic)), _parts(traffic, k)),
        )


def split(traffic: Traffic, k: int, draw: int = 0) -> Traffic:
    """Every unit as k units; a unit of fewer than k packets as one unit per packet."""
    parts = _parts(traffic, k)
    rows = np.repeat(np.arange(len(traffic)), parts)
    number = np.arange(len(rows)) - np.repeat(np.cumsum(parts) - parts, parts)
    keys = traffic.keys.take(rows)
    ports = generator(draw).integers(_FIRST_PORT, 1 << 16, len(rows))
    keys = keys._replace(
        sport=np.where(number == 0, keys.sport, ports).astype(np.uint16),
        dest_qp=((keys.dest_qp + number) & 0xFFFFFF).astype(np.uint32),
    )
    shares = parts[rows]
    return replace(
        traffic,
        keys=keys,
        src_host=traffic.src_host[rows],
        dst_host=traffic.dst_host[rows],
        flow=np.arange(len(rows), dtype=np.int32),
        packets=_share(traffic.packets[rows], number, shares),
        wire_bytes=_share(traffic.wire_bytes[rows], number, shares),
        first_ns=traffic.first_ns[rows],
        last_ns=traffic.last_ns[rows],
        windows=_split_windows(traffic, parts),
        has_data=None if traffic.has_data is None else traffic.has_data[rows],
        dscp=None if traffic.dscp is None else traffic.dscp[rows],
    )


def _parts(traffic: Traffic, k: int) -> Ints:
    parts: Ints = np.minimum(k, np.maximum(traffic.packets, 1))
    return parts


def _share(amount: Array, number: Array, shares: Array) -> Ints:
    """Share `number` of `shares` equal whole shares; the first shares are larger by 1."""
    share: Ints = amount // shares + (number < amount % shares)
    return share


def _split_windows(traffic: Traffic, parts: Ints) -> Windows | None:
    windows = traffic.windows
    if windows is None:
        return None
    times = parts[windows.unit]
    rows = np.repeat(np.arange(len(windows.unit)), times)
    number = np.arange(len(rows)) - np.repeat(np.cumsum(times) - times, times)
    first = np.cumsum(parts) - parts
    unit = (first[windows.unit[rows]] + number).astype(np.int32)
    order = np.lexsort((windows.window[rows], unit))
    wire_bytes = _share(windows.wire_bytes[rows], number, times[rows])
    return windows._replace(
        unit=unit[order], window=windows.window[rows][order], wire_bytes=wire_bytes[order]
    )
