"""Flows that change their way at one moment: a rehash, or a link that went down."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...measures.hops.state import START
from ...measures.hops.vantage import parts_of
from ...results.diagnosis import Finding, Place
from ...words import printable
from ..case import Case
from ..finding import counted, finding
from ..known import REHASH_CAUSES, Finder, Known

MOST_MOVES = 4
PACKETS_PER_MOVE = 10
"""Flows that move more often, or with fewer packets between moves, are sprayed."""
TOGETHER_NS = 100_000_000
"""Moves this close together have one cause: a router changes its table in milliseconds, and every
flow moves with its next packet."""
LEAST_FLOWS = 3


def hop_moves(case: Case, known: Known) -> Iterator[Finding]:
    """One finding per device and moment."""
    tap_hops = case.tap_hops
    if tap_hops is None:
        return
    visits = tap_hops.visits
    moved = visits[(visits["moves"] > 0) & (visits["moves"] <= MOST_MOVES)]
    moved = moved[(moved["tap"] < START) & (moved["went_on"] >= PACKETS_PER_MOVE * moved["moves"])]
    by_device: dict[str, list[int]] = {}
    for i, visit in enumerate(moved):
        nexts = {int(visit["first_next_tap"]), int(visit["next_tap"])}
        device = _device(tap_hops.names, int(visit["tap"]), nexts)
        by_device.setdefault(device or tap_hops.names[int(visit["tap"])], []).append(i)
    for device, rows in by_device.items():
        at_device = moved[rows]
        at_device = at_device[np.argsort(at_device["first_move_ns"], kind="stable")]
        starts = np.flatnonzero(np.diff(at_device["first_move_ns"]) > TOGETHER_NS) + 1
        for cluster in np.split(at_device, starts):
            flows = np.unique(cluster["flow"])
            if len(flows) < LEAST_FLOWS:
                continue
            first = int(cluster["first_move_ns"].min())
            last = int(cluster["last_move_ns"].max())
            left = {case.registry.tap_names[int(tap)] for tap in cluster["first_next_tap"]}
            if known.moved_from(left, first, last):
                continue
            if any(known.explains(REHASH_CAUSES, int(f), first, last) for f in flows):
                continue
            yield _move(case, device, cluster, first, last)


def _device(names: list[str], tap: int, nexts: set[int]) -> str | None:
    """The device between a tap and all its next taps."""
    shared = set(parts_of(names[tap]))
    for other in nexts:
        shared &= set(parts_of(names[other]))
    return next(iter(shared)) if len(shared) == 1 else None


def _move(case: Case, device: str, cluster: np.ndarray, first: int, last: int) -> Finding:
    assert case.tap_hops is not None
    names, taps = case.tap_hops.names, case.registry.tap_names
    flows = np.unique(cluster["flow"])
    went_back = cluster["first_next_tap"] == cluster["next_tap"]
    left = np.unique(cluster["first_next_tap"])
    from_taps = np.unique(cluster["tap"])
    hits = {int(f): 1 for f in flows}
    abandoned = len(left) == 1 and not went_back.any() and not _used_after(case, int(left[0]), last)
    name = printable(device)
    if abandoned:
        link = printable(names[int(left[0])])
        return finding(
            case, "link-down", Place(to_tap=taps[int(left[0])], device=device), len(hits),
            f"{name} sends nothing over {link} any more: {counted(len(flows), 'flow')} moved away",
            f"check the link {link}",
            hits=hits, span=(first, last), severity="warning", costs=False, until_ns=None,
        )  # fmt: skip
    back = " and back" if went_back.all() else ""
    return finding(
        case, "rehash",
        Place(from_tap=taps[int(from_taps[0])] if len(from_taps) == 1 else None, device=device),
        len(hits),
        f"{name} moves {counted(len(flows), 'flow')} to other links{back}",
        f"check the log of {name} for changed routes or link members",
        hits=hits, span=(first, last), severity="warning", costs=False,
        until_ns=last if back else None,
    )  # fmt: skip


def _used_after(case: Case, tap: int, time: int) -> bool:
    """Whether packets entered the device's link after a time."""
    assert case.tap_hops is not None
    into = [hop for hop in case.tap_hops.hops if hop.to_tap == tap and hop.total is not None]
    return any(int(hop.total["last_ns"]) > time + TOGETHER_NS for hop in into)


FINDERS = (Finder(hop_moves, ("rehash", "link-down"), REHASH_CAUSES, after=("overtaking",)),)
