"""MRC planes in one line: those in use, and ports that hosts declared unreachable."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import commonprefix

from rich.text import Text

from ...report.words import human
from ..session.snapshots.snapshot import MrcColumns, MrcPlaneState


def plane_line(mrc: MrcColumns, start_ns: int) -> Text:
    """Avoided planes and ports that are down, then planes in use, then past outages."""
    text = Text(" planes ", "dim", no_wrap=True, overflow="ellipsis")
    names = _endings([plane.name for plane in mrc.plane_states])
    planes = list(zip(names, mrc.plane_states, strict=True))
    for name, plane in planes:
        if plane.is_avoided:
            out = f"{plane.out_of_use} of {human.counted(plane.values, 'EV')}"
            text.append(f"▼ {name}: {out} retired  ", "bold red")
    for outage in mrc.outages:
        if outage.up_time_ns is None:
            since = human.duration(outage.down_time_ns - start_ns)
            text.append(f"{outage.host} port {outage.port} ", "bold")
            text.append(f"▼ down since {since}  ", "bold red")
    used = [name + _some_out(plane) for name, plane in planes if not plane.is_avoided]
    if used:
        text.append("▲ ", "bold").append(f"in use: {', '.join(used)}  ")
    elif not planes:
        text.append("unknown: neither segments nor taps distinguish planes  ")
    for outage in mrc.outages:
        if outage.up_time_ns is not None:
            since = human.duration(outage.down_time_ns - start_ns)
            text.append(f"{outage.host} port {outage.port} ", "bold")
            gone = human.duration(outage.up_time_ns - outage.down_time_ns)
            text.append(f"▲ up; down at {since} for {gone}  ", "dim")
    return text


def _some_out(plane: MrcPlaneState) -> str:
    """Number of retired and possibly retired entropy values of a plane in use."""
    parts = [f"{human.counted(plane.out_of_use, 'EV')} retired"] if plane.out_of_use else []
    if plane.may_be_out:
        parts.append(f"{human.counted(plane.may_be_out, 'EV')} possibly retired")
    return f" ({', '.join(parts)})" if parts else ""


def _endings(names: Sequence[str]) -> list[str]:
    """The part of each name after the last colon of the common prefix."""
    begin = commonprefix(list(names)).rfind(":") + 1 if len(names) > 1 else 0
    return [name[begin:] for name in names]
