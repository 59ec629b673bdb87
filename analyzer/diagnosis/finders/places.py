"""Words and names for the place of a finding that one tap shows."""

from __future__ import annotations

from collections.abc import Iterable

from ...measures.troubles import NAK_SENT, Trouble
from ...results.flow import Flow
from ...wire.packets import FULL_HOP_LIMITS
from ...words import printable
from ..case import Case


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
    return f"before {called(case, tap, 'first')}"


def after(case: Case, tap: str | None) -> str:
    """`after the tap`, `after leaf1-spine1`, `after the last tap`."""
    return f"after {called(case, tap, 'last')}"


INCAST_SOURCES = 3
"""Loss from this many hosts on the way to one host may be an egress that they overload."""


LAST_SWITCH = (
    "check the last switch: an egress that these hosts overload (incast) or a bad link; taps "
    "before and after it show which"
)
"""The next step where it may be one."""


def may_be_incast(flows: Iterable[Flow]) -> bool:
    """Whether several hosts send these flows to one."""
    flows = list(flows)
    return len({f.src for f in flows}) >= INCAST_SOURCES and len({f.dst for f in flows}) == 1


def called(case: Case, tap: str | None, which: str) -> str:
    """The short name of a tap; `the tap` if there is one, `the first tap` if it is not known."""
    if not case.measuring.many_taps:
        return "the tap"
    if tap is None:
        return f"the {which} tap"
    short = [] if case.ways is None else case.ways.names
    return printable(short[case.registry.tap_names.index(tap)] if short else tap)


def link_of_receiver(case: Case, flow: Flow) -> str | None:
    """The tap on the link of the flow's receiver, which the packets of `flow` pass last.

    The receiver's NAKs come there first, with a hop limit that no router has lowered. None where
    that is not known, and where one tap sees the packets or the NAKs, unless a router has lowered
    the hop limit of the packets: without a router every tap looks like this.
    """
    peer = case.peers.get(flow.id)
    if peer is None or not case.measuring.many_taps:
        return None
    troubles = case.measuring.troubles
    naks = troubles.of(peer, NAK_SENT)
    if naks is None or int(troubles.progress(peer)["hop_limit"]) not in FULL_HOP_LIMITS:
        return None
    alone = len(flow.taps) == 1 or len(case.flows[peer].taps) == 1
    if alone and int(troubles.progress(flow.id)["hop_limit"]) in FULL_HOP_LIMITS:
        return None
    tap = tap_of(case, [naks])
    return tap if tap in flow.taps else None
