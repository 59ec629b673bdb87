"""Words and names for the place of a finding that one tap shows."""

from __future__ import annotations

from collections.abc import Iterable

from ...measures.troubles import NAK_SENT, Trouble
from ...results.flow import Flow
from ...words import printable
from ..case import Case

FULL_HOP_LIMITS = (64, 128, 255)
"""Hop limits of packets that no router has forwarded yet."""


def only(values: Iterable[str]) -> str | None:
    """The value, if there is just one."""
    different = set(values)
    return next(iter(different)) if len(different) == 1 else None


def tap_of(case: Case, troubles: Iterable[Trouble]) -> str | None:
    """The tap that saw all of these packets first, if it is one."""
    names = case.registry.tap_names
    return only(names[tap] for trouble in troubles for _, _, tap in trouble.frames)


def before(case: Case, tap: str | None) -> str:
    """`before the tap`, `before leaf1-spine1`, `before the first tap`."""
    return f"before {_called(case, tap, 'first')}"


def after(case: Case, tap: str | None) -> str:
    """`after the tap`, `after leaf1-spine1`, `after the last tap`."""
    return f"after {_called(case, tap, 'last')}"


def _called(case: Case, tap: str | None, which: str) -> str:
    if not case.measuring.many_taps:
        return "the tap"
    if tap is None:
        return f"the {which} tap"
    short = [] if case.ways is None else case.ways.names
    names = case.registry.tap_names
    return printable(short[names.index(tap)] if short else tap)


def link_of_receiver(case: Case, flow: Flow) -> str | None:
    """The tap on the link of the flow's receiver, which the packets of `flow` pass last.

    The receiver's NAKs come there first, with a hop limit that no router has lowered. None where
    that is not known, and with one tap: without a router every tap looks like this.
    """
    peer = case.peers.get(flow.id)
    if peer is None or not case.measuring.many_taps:
        return None
    troubles = case.measuring.troubles
    naks = troubles.of(peer, NAK_SENT)
    if naks is None or int(troubles.progress(peer)["hop_limit"]) not in FULL_HOP_LIMITS:
        return None
    tap = tap_of(case, [naks])
    return tap if tap in flow.taps else None
