"""Event kinds and texts on the screens."""

from __future__ import annotations

import re

from ...analyzer.results.events import Event

_WORDS = {
    "nak": "NAK",
    "rnr_nak": "RNR NAK",
    "sequence_restart": "PSN restart",
    "cm": "CM message",
    "dscp": "DSCP change",
    "mrc_nack": "MRC NACK",
    "ev_retired": "EV retired",
    "ev_returned": "EV returned",
    "plane_down": "plane down",
    "plane_up": "plane up",
}
_PLANE = re.compile(r" of plane (\S+)")


def kind_name(kind: str) -> str:
    """The name of one event of a kind."""
    return _WORDS.get(kind, kind.replace("_", " "))


def counted_kind(count: int, kind: str) -> str:
    """`1 NAK`, `81 NAKs`; kinds such as `EV retired` have no plural."""
    name = kind_name(kind)
    plural = name if kind in ("ev_retired", "ev_returned", "plane_down", "plane_up") else f"{name}s"
    return f"{count:,} {name if count == 1 else plural}"


def event_text(event: Event, short: bool = False, room: int | None = None) -> str:
    """The text of an event, without the name of its kind.

    short: without the addresses of the flow. A text longer than `room` is shortened: first the
    addresses, then the common part of plane names and the note that a cause is inferred.
    """
    text = _text(event, short)
    if room is None or len(text) <= room:
        return text
    text = text if short else _text(event, True)
    if len(text) > room:
        text = _PLANE.sub(_ending, text).replace(": EV ", ": ").replace("(inferred: ", "(")
    return text


def _ending(plane: re.Match[str]) -> str:
    """The digits of `fcbb:bb00:0200` that distinguish planes."""
    _, colon, last = plane[1].rpartition(":")
    return f" on {'…' if colon else ''}{last}"


def _text(event: Event, short: bool) -> str:
    where, colon, what = event.text.partition(": ")
    what = what.removeprefix(f"{kind_name(event.kind)}, ")
    if event.kind.startswith("ev_"):
        what = (
            what.replace("entropy value", "EV").replace(" retired", "").replace(" used again", "")
        )
    if short:
        where, what = (
            where.rpartition(" QP ")[2],
            what.replace("retransmits from", "from"),
        )
    return f"{where}{colon}{what}"
