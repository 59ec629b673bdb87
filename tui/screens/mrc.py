"""MRC on the screens: planes in one line, and the recovery of a flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from os.path import commonprefix

from msgspec import UnsetType
from rich.text import Text

from ...analyzer.results.base import Quantiles
from ...analyzer.results.flow import Flow
from ...analyzer.results.mrc import MrcFlow, MrcRetirement
from ...report import human
from ..session.snapshot import MrcColumns, MrcPlaneState
from ..strips import Bar

# MRC planes in one line: those in use, and ports that hosts declared unreachable.


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


# The recovery screen of an MRC flow: RTX, NACKs, retired and returned entropy values.

Row = tuple[str, str]


def mrc_of(flow: Flow | None) -> MrcFlow | None:
    """The MRC record of a flow that sends MRC data."""
    return None if flow is None or isinstance(flow.mrc, UnsetType) else flow.mrc


def mrc_counts(record: MrcFlow) -> list[Row]:
    """Counts that should be 0."""
    repeats, answers = record.retransmissions, record.answers
    nacks = skips = human.UNKNOWN
    if answers is not None:
        nacks = ", ".join(f"{k} {n}" for k, n in answers.nacks.items()) or "0"
        skips = f"{human.count(answers.skip_once)}, {human.count(answers.always_skip)}"
    return [
        ("RTX", f"{human.count(repeats)} ({human.percent(repeats / max(1, record.packets))})"),
        ("after a NACK", human.count(record.retransmissions_after_nack)),
        ("NACKs", nacks),
        ("trimmed", human.count(record.trimmed_packets)),
        ("skip once, always", skips),
    ]


def mrc_causes(record: MrcFlow, start_ns: int) -> list[Row]:
    """Causes of retired entropy values and their return; answers of receivers."""
    known, answers = _known(record), record.answers
    more = len(record.retirements) - len(known)
    returned = sum(value.returned_time_ns is not None for value in known)
    back = f", {human.count(returned)} returned" if known else ""
    causes = Counter(value.cause.replace("_", " ") for value in known)
    rows = [
        ("EVs retired", f"{len(known)} of {human.count(record.entropy_values)}{back}"),
        ("inferred cause", ", ".join(f"{n} {cause}" for cause, n in causes.most_common())),
        ("SACK depth", _spread(answers.out_of_order_depth if answers else None, _round)),
        ("round trip", _spread(answers.round_trip_ns if answers else None, human.duration)),
    ]
    if more:
        rows.insert(2, ("possibly retired", f"{human.count(more)}, just before the end"))
    if known:
        last = known[-1]
        text = f"{last.ev} at {human.duration(last.retired_time_ns - start_ns)}"
        if last.returned_time_ns is not None:
            text += (
                f", returned after {human.duration(last.returned_time_ns - last.retired_time_ns)}"
            )
        rows.insert(2, ("last retired", text))
    return rows


def lost_by_value(record: MrcFlow) -> list[Bar]:
    """Packets that were retransmitted later, by their first entropy value, in descending order."""
    worst = sorted(record.values, key=lambda value: -value.lost_packets)
    return [Bar(value.ev, value.lost_packets) for value in worst if value.lost_packets]


def mrc_sentence(record: MrcFlow, marked: str = "") -> str:
    """Losses, retransmissions and retired paths in one sentence.

    marked: the words on congestion, for flows without losses.
    """
    repeats, known = record.retransmissions, _known(record)
    if not repeats and not record.retirements and not record.trimmed_packets:
        return f"No packet was lost, trimmed or retransmitted{marked}."
    parts = []
    if repeats:
        text = f"{human.counted(repeats, 'packet')} retransmitted (RTX)"
        if record.retransmissions_after_nack:
            text += f", {human.count(record.retransmissions_after_nack)} after a NACK"
        parts.append(text)
    if record.trimmed_packets:
        parts.append(f"{human.count(record.trimmed_packets)} trimmed")
    more = len(record.retirements) - len(known)
    if known:
        back = sum(value.returned_time_ns is not None for value in known)
        text = f"{human.counted(len(known), 'EV')} retired, {human.count(back)} returned"
        parts.append(text + (f", {human.count(more)} more possibly retired" if more else ""))
    elif more:
        parts.append(f"{human.counted(more, 'EV')} possibly retired")
    return f"{'; '.join(parts)}."


def _known(record: MrcFlow) -> list[MrcRetirement]:
    """Retirements that are certain; the flow ended too early to confirm the others."""
    return [value for value in record.retirements if value.certain]


def _spread(record: Quantiles | None, say: Callable[[float], str]) -> str:
    if record is None or not record.count:
        return human.UNKNOWN
    return f"p50 {say(record.p50)}, p99 {say(record.p99)}, max {say(record.max)}"


def _round(number: float) -> str:
    return human.count(round(number))
