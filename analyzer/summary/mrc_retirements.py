"""Retired entropy values of an MRC flow, with their causes.

A sender does not announce a retirement: it shows in packets sent without the entropy value. The
number of packets needed depends on other evidence in the capture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from ...kernels.kernel import Array
from ..measures import mrc as st
from ..results.mrc import MrcPortOutage, MrcRetirement


class Silence(NamedTuple):
    """The time between two packets with one entropy value, or after its last one."""

    key: int
    since_ns: int
    until_ns: int | None
    without: int
    """Packets that the flow sent during the silence."""
    lost_ns: int
    """First retransmission without a NACK during the silence, ns; 0: none."""


class Why(NamedTuple):
    """The cause of a silence."""

    cause: str
    time_ns: int | None


def silences(log: Array, f: int, packets: int, sent: Array) -> list[Silence]:
    """The long silences of flow `f` by time: ended ones, then those up to the end.

    log: mrc_state.LOG records; packets: number of packets of the flow; sent: its mrc_state.EV
    records.
    """
    ended = log[(log["kind"] == st.LOG_RETURNED) & (log["flow"] == f)]
    found = [
        Silence(
            int(entry["key"]),
            int(entry["value"]),
            int(entry["time_ns"]),
            int(entry["without"]),
            int(entry["lost_ns"]),
        )
        for entry in ended
    ]
    found += [
        Silence(
            int(ev["key"]),
            int(ev["last_ns"]),
            None,
            packets - int(ev["last_index"]) - 1,
            int(ev["lost_ns"]) if ev["lost_ns"] > ev["last_ns"] else 0,
        )
        for ev in sent
    ]
    return sorted(found, key=lambda silence: (silence.since_ns, silence.key))


def retirements(
    found: list[Silence],
    values: int,
    near_ns: int,
    told: dict[int, Any],
    outages: list[MrcPortOutage],
    plane_of: Callable[[int], str | None],
    plane_sizes: Counter[str],
    name: Callable[[int], str],
    heard: bool,
) -> list[MrcRetirement]:
    """The silences that mean a retirement.

    values: entropy values of the flow. near_ns: longest distance to a possible cause. told: TOLD
    records by entropy value. heard: responses were seen; otherwise it is unknown which
    retransmissions answer a NACK. outages: of the hosts of the flow. plane_sizes: entropy values of
    each plane.
    """
    enough = max(st.RETIRED_AFTER_PACKETS, st.RETIRED_AFTER_ROUNDS * values)
    whys = [_why(one, near_ns, told.get(one.key), outages) for one in found]
    down = Counter(
        plane_of(one.key)
        for one, why in zip(found, whys, strict=True)
        if why.cause == "port_down" and one.without > st.CAUSED_ROUNDS * values
    )
    listed = []
    for one, why in zip(found, whys, strict=True):
        plane = plane_of(one.key)
        if why.cause == "port_down" and plane is not None and 2 * down[plane] < plane_sizes[plane]:
            why = _why(one, near_ns, told.get(one.key), [])  # the rest of its plane stayed in use
        certain = one.without > (enough if why.cause == "unknown" else st.CAUSED_ROUNDS * values)
        named = heard and one.until_ns is None and why.cause in ("always_skip", "loss")
        if certain or named:
            listed.append(
                MrcRetirement(
                    name(one.key), plane, one.since_ns, one.until_ns, why.cause, why.time_ns,
                    one.without, certain,
                )
            )  # fmt: skip
    return listed


def _why(one: Silence, near_ns: int, told: Any, outages: list[MrcPortOutage]) -> Why:
    """The cause of a retirement, as far as the capture shows."""
    if told is not None and told["always_skips"]:
        said = int(told["last_always_skip_ns"])
        if one.since_ns - near_ns <= said and (one.until_ns is None or said < one.until_ns):
            return Why("always_skip", said)
    for outage in outages:
        up = outage.up_time_ns
        lasted = one.until_ns is None or (up is not None and up <= one.until_ns)
        lost_later = up is not None and up < one.lost_ns
        if lasted and not lost_later and abs(outage.down_time_ns - one.since_ns) <= near_ns:
            return Why("port_down", outage.down_time_ns)
    return Why("loss", one.lost_ns) if one.lost_ns else Why("unknown", None)
