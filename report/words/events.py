"""What kinds of events are called on the screens."""

from __future__ import annotations

import re

from ...analyzer.results.analysis import Event

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
_PSN = re.compile(r"\b(PSN (?:jumps to )?)(\d+)")


def kind_name(kind: str) -> str:
    """One event of a kind."""
    return _WORDS.get(kind, kind.replace("_", " "))


def counted_kind(count: int, kind: str) -> str:
    """`1 NAK`, `81 NAKs`; kinds that say what happened stay as they are."""
    name = kind_name(kind)
    plural = name if kind in ("ev_retired", "ev_returned", "plane_down", "plane_up") else f"{name}s"
    return f"{count:,} {name if count == 1 else plural}"


def event_text(event: Event, short: bool = False, room: int | None = None) -> str:
    """What happened, with PSNs as the packets show them, without what the kind says already.

    short: without the addresses of the flow. Where there is no room, what others need less
    goes first: those addresses, then what planes have in common and that causes are inferred.
    """
    text = _text(event, short)
    if room is None or len(text) <= room:
        return text
    text = text if short else _text(event, True)
    if len(text) > room:
        text = _PLANE.sub(_ending, text).replace(": EV ", ": ").replace("(inferred: ", "(")
    return text


def _ending(plane: re.Match[str]) -> str:
    """Of `fcbb:bb00:0200` the digits that tell planes apart."""
    _, colon, last = plane[1].rpartition(":")
    return f" on {'…' if colon else ''}{last}"


def _text(event: Event, short: bool) -> str:
    text = _PSN.sub(lambda found: f"{found[1]}0x{int(found[2]):06x}", event.text)
    where, colon, what = text.partition(": ")
    what = what.removeprefix(f"{kind_name(event.kind)}, ")
    if event.kind.startswith("ev_"):
        what = (
            what.replace("entropy value", "EV").replace(" retired", "").replace(" used again", "")
        )
    if short:
        where, what = (
            where.rpartition(" QP ")[2],
            what.replace("sends again", "again"),
        )
    return f"{where}{colon}{what}"
