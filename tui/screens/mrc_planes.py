"""The planes of MRC in a line: which are in use, and ports that hosts declared unreachable."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import commonprefix

from rich.text import Text

from .. import human
from ..snapshot import MrcColumns


def plane_line(mrc: MrcColumns, start_ns: int) -> Text:
    """Planes that nobody uses any more first; then what hosts said of their ports."""
    text = Text(" planes ", "dim", no_wrap=True, overflow="ellipsis")
    if not mrc.plane_states:
        text.append("not known: neither segments nor taps tell them apart ", "")
    names = _endings([plane.name for plane in mrc.plane_states])
    named = zip(names, mrc.plane_states, strict=True)
    for name, plane in sorted(named, key=lambda one: not one[1].is_down):
        if plane.is_down:
            text.append(f"▼ {name} down, no EV in use  ", "bold red")
            continue
        text.append(f"▲ {name} up ", "bold")
        out = f", {plane.out_of_use} out" if plane.out_of_use else ""
        text.append(f"{human.counted(plane.values, 'EV')}{out}  ", "yellow" if out else "dim")
    for outage in mrc.outages:
        since = human.duration(outage.down_time_ns - start_ns)
        text.append(f"{outage.host} port {outage.port} ", "bold")
        if outage.up_time_ns is None:
            text.append(f"▼ unreachable since {since}  ", "bold red")
        else:
            gone = human.duration(outage.up_time_ns - outage.down_time_ns)
            text.append(f"▲ up again, was unreachable at {since} for {gone}  ", "dim")
    return text


def _endings(names: Sequence[str]) -> list[str]:
    """What comes behind the colon that all of them have in common."""
    begin = commonprefix(list(names)).rfind(":") + 1 if len(names) > 1 else 0
    return [name[begin:] for name in names]
