"""Planes of MRC: the plane of each entropy value, and the traffic per plane."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..measures.path_table import OTHER
from ..results.mrc import MrcPlane, MrcPlanes
from ..statistics.shares import jain
from .names import Names
from .options import PlaneBy

NO_PLANES = "neither SRv6 segments nor several taps identify planes; set --plane-by"


class Planes:
    """The planes of one result.

    sent: the mrc_state.EV records of the entropy values that flows sent.
    """

    def __init__(self, sent: NDArray[Any], names: Names, asked: PlaneBy) -> None:
        self._sent = sent
        self._names = names
        self._segment_names: dict[int, str | None] = {}
        self._inferred = asked.kind == "auto"
        self._by = _guessed(sent) if self._inferred else asked

    @property
    def by(self) -> str:
        """The key of the planes; empty when there is none."""
        return "" if self._by is None else str(self._by)

    def of(self, ev: Any) -> str | None:
        """The plane of an entropy value; None when unknown."""
        by = self._by
        if by is None or int(ev["key"]) == OTHER:
            return None
        if by.kind == "tap":
            return self._names.taps[int(ev["tap"])]
        if by.kind == "ev":
            return str(int(ev["key"]) >> by.number & (1 << by.bits) - 1)
        return self._segment_name(int(ev["evidence"]), by.number)

    def numbered(self) -> tuple[NDArray[np.int64], list[str]]:
        """The plane index of each entropy value (-1: unknown), and the names of the planes."""
        sent, by = self._sent, self._by
        if by is None or not len(sent):
            return np.full(len(sent), -1, np.int64), []
        column = {"tap": "tap", "ev": "key"}.get(by.kind, "evidence")
        _, one, of = np.unique(sent[column], return_index=True, return_inverse=True)
        named = [self.of(sent[i]) for i in one.tolist()]
        names = sorted({name for name in named if name is not None})
        numbers = np.array([-1 if n is None else names.index(n) for n in named], np.int64)
        planes = numbers[of]
        planes[sent["key"] == OTHER] = -1
        return planes, names

    def loads(self, evs: NDArray[Any]) -> MrcPlanes | None:
        """Traffic of each plane for these entropy values; None when no plane is known."""
        carried: Counter[str] = Counter()
        packets: Counter[str] = Counter()
        values: Counter[str] = Counter()
        for ev in evs:
            plane = self.of(ev)
            if plane is None:
                continue
            carried[plane] += int(ev["wire_bytes"])
            packets[plane] += int(ev["packets"])
            values[plane] += 1
        total = carried.total()
        if not total:
            return None
        loads = np.array(list(carried.values()), np.int64)
        return MrcPlanes(
            plane_by=self.by,
            inferred=self._inferred,
            planes=[
                MrcPlane(name, values[name], packets[name], carried[name], carried[name] / total)
                for name in sorted(carried)
            ],
            jain=jain(loads),
            max_over_mean=float(loads.max() / loads.mean()),
        )

    def _segment_name(self, evidence: int, number: int) -> str | None:
        segments = self._names.segments
        if not 0 < evidence <= len(segments):
            return None
        if evidence not in self._segment_names:
            block, usids, _ = segments.usids(segments.segments(evidence)[0])
            name = f"{block}:{usids[number - 1]}" if number <= len(usids) else None
            self._segment_names[evidence] = name
        return self._segment_names[evidence]


def _guessed(sent: NDArray[Any]) -> PlaneBy | None:
    """The detected key of the planes; None when there is none."""
    if len(sent) and sent["evidence"].any():
        return PlaneBy("segment", 1)
    links = np.unique(sent[["lane", "tap"]])
    if len(links) > len(np.unique(links["lane"])):  # else each sender has one link
        return PlaneBy("tap")
    return None
