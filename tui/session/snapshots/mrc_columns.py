"""MRC for the screens: columns by flow, paths by plane, and its events."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ....analyzer.measures import mrc as st
from ....analyzer.measures.measuring import Measuring
from ....analyzer.measures.mrc import MrcMeasure
from ....analyzer.results.events import Event
from ....analyzer.statistics.histogram import MAX
from ....analyzer.summary.mrc import MrcSummary
from ....analyzer.summary.summarize import Summary
from ....kernels.kernel import Array, Int32s, Ints
from .columns import widths
from .snapshot import UNKNOWN, MrcColumns, MrcPlaneState, PathColumns

_FLOW_COLUMNS = (
    "values", "fell_out", "planes", "resends", "trimmed", "nacks", "skips", "depth"
)  # fmt: skip
_SHARE_OF_TIME = 20
"""Minimum interval between updates, in multiples of the duration of an update."""


class MrcView:
    """MRC data of the screens, updated as packets arrive."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.columns: MrcColumns | None = None
        self.planes: PathColumns | None = None
        """None if nothing distinguishes planes."""
        self._packets = 0
        self._due = 0.0

    def update(self, measuring: Measuring, running: bool, make: Callable[[], Summary]) -> None:
        """Process new packets; call it while the engine is paused."""
        began, packets = time.monotonic(), measuring.mrc.packets
        if packets == self._packets or (running and began < self._due):
            return
        self._packets = packets
        summary = make()
        if summary.mrc is not None:
            self.events = summary.mrc_events()
            peer = measuring.tracker.flows["peer"].copy()
            self.columns, self.planes = _columns(measuring.mrc, summary.mrc, peer)
        now = time.monotonic()
        self._due = now + _SHARE_OF_TIME * (now - began)

    def of(self, flows: int) -> tuple[MrcColumns | None, PathColumns | None]:
        """Columns and planes with an entry for each flow, including new flows."""
        columns, planes = self.columns, self.planes
        if columns is not None and len(columns.values) < flows:
            longer: dict[str, Any] = {
                name: _padded(getattr(columns, name), flows, UNKNOWN) for name in _FLOW_COLUMNS
            }
            columns = replace(columns, **longer)
        if planes is not None and len(planes.width) < flows:
            planes = replace(
                planes,
                starts=_padded(planes.starts, flows + 1, int(planes.starts[-1])),
                width=_padded(planes.width, flows, 0),
            )
        return columns, planes


def _padded(values: Array, length: int, fill: int) -> Array:
    return np.concatenate([values, np.full(length - len(values), fill, values.dtype)])


def _columns(
    measure: MrcMeasure, summary: MrcSummary, peer: Int32s
) -> tuple[MrcColumns, PathColumns | None]:
    """peer: flow index of each flow's peer, -1 while it is unknown."""
    flows = len(peer)
    records = measure.flows(flows)
    sends = records["packets"] > 0
    sent, plane, names = summary.sent()
    flow = sent["lane"] // st.LANES
    values = np.bincount(flow, minlength=flows)
    out, out_of_plane, may_be = (
        np.zeros(flows, np.int64),
        Counter[str | None](),
        Counter[str | None](),
    )
    for f in np.flatnonzero(sends).tolist():
        for retired in summary.retirements(f):
            out[f] += retired.certain
            if not retired.certain:
                may_be[retired.plane] += 1
            elif retired.returned_time_ns is None:
                out_of_plane[retired.plane] += 1
    answers = records[np.maximum(peer, 0)]
    heard = sends & (peer >= 0) & ((answers["sacks"] > 0) | answers["nacks"].any(axis=1))

    def of_sender(values: Array) -> Ints:
        return np.where(sends, values, UNKNOWN).astype(np.int64)

    def of_answers(values: Array) -> Ints:
        return np.where(heard, values, UNKNOWN).astype(np.int64)

    known = plane >= 0
    by_plane = _by_plane(sent[known], flow[known], plane[known], flows, names)
    states = [
        MrcPlaneState(name, int((plane == i).sum()), out_of_plane[name], may_be[name])
        for i, name in enumerate(names)
    ]
    columns = MrcColumns(
        values=of_sender(values),
        fell_out=of_sender(out),
        planes=of_sender(by_plane.seen() if names else np.full(flows, UNKNOWN)),
        resends=of_sender(records["resends"]),
        trimmed=of_sender(records["trimmed"]),
        nacks=of_answers(answers["nacks"].sum(axis=1)),
        skips=of_answers(answers["skips"] + answers["always_skips"]),
        depth=of_answers(_largest(measure, st.OOO_DEPTH, flows)[np.maximum(peer, 0)]),
        plane_states=tuple(states),
        plane_by=summary.planes.by,
        outages=tuple(summary.outages),
    )
    return columns, by_plane if names else None


def _largest(measure: MrcMeasure, kind: int, flows: int) -> Ints:
    """The largest observed value of a kind per flow, 0 without any."""
    pool, largest = measure.histograms.arrays, np.zeros(flows, np.int64)
    row = pool.row[:flows, kind]
    largest[: len(row)] = np.where(row >= 0, pool.stats[np.maximum(row, 0), MAX], 0)
    return largest


def _by_plane(sent: Array, flow: Ints, plane: Ints, flows: int, names: list[str]) -> PathColumns:
    """Counts of each flow on each plane; the column of late packets holds retransmitted ones."""
    codes, of = np.unique(flow * max(1, len(names)) + plane, return_inverse=True)
    owner = codes // max(1, len(names))

    def total(column: str) -> Ints:
        return np.bincount(of, sent[column], len(codes)).astype(np.int64)

    wire_bytes = total("wire_bytes")
    return PathColumns(
        by="plane",
        starts=np.searchsorted(owner, np.arange(flows + 1)),
        key=codes % max(1, len(names)),
        packets=total("packets"),
        wire_bytes=wire_bytes,
        late=total("lost"),
        marked=total("marked"),
        width=widths(owner, wire_bytes.astype(np.float64), flows)[0],
        name=lambda key: names[key],
    )
