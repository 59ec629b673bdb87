"""What these captures cannot tell, and which tap or option would tell it."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import shorten

from msgspec import UNSET

from ..summary.hidden import gaps_in
from ..words import printable
from .case import Case, lost_or_late, unmapped
from .deaths import may_be_answered
from .finders.delays import spans_of, too_short
from .words import counted, duration, number

_NAMED_FILTERS = 200
_DSCPS_NAMED = 5
UNANSWERED = ("UC", "UD", "CNP")
"""Transports whose requests have no answer."""


def limits(case: Case) -> list[str]:
    """Lines, most important first."""
    checks = _CHECKS if case.flows else _CHECKS[:1]
    return [line for check in checks for line in check(case)]


def _how_it_was_read(case: Case) -> Iterator[str]:
    if not case.complete:
        yield "incomplete: findings cover what was read so far"
    damaged = [  # of rings `_gaps` shows which file
        printable(capture.name)
        for capture in case.captures
        if capture.damaged_places and capture.gaps is UNSET
    ]
    if damaged:
        which = damaged[0] if len(damaged) == 1 else f"{number(len(damaged))} captures"
        yield f"{which} cannot be read in full (cut short or damaged): the rest is unknown"
    filters = {tap.filter for tap in case.registry.taps.items if tap.leaves_out_roce}
    if filters:
        named = shorten(printable("; ".join(sorted(map(str, filters)))), _NAMED_FILTERS)
        yield (
            f"captured with a filter ({named}): packets outside it are not counted, and their "
            "loss is unknown"
        )
    if case.measuring.filtered:
        yield "a filter is set: loss of other packets is unknown"


def _ended(case: Case) -> Iterator[str]:
    ended = case.ended
    if ended.flows_in_trouble:
        yield (
            f"{counted(ended.flows_in_trouble, 'flow')} with losses, late, marked or retransmitted"
            " packets ended and were removed from memory: findings cover the flows that are listed"
        )
    if ended.returned_flows:
        yield (
            f"{counted(ended.returned_flows, 'flow')} resumed after removal from memory: losses "
            "and late packets in between are unknown"
        )
    if ended.unknown_between_taps:
        yield (
            f"{counted(ended.unknown_between_taps, 'packet')} of flows that were removed from "
            "memory, which the"
            " next tap did not see: whether they arrived is unknown"
        )
    if ended.missed_by_captures:
        yield (
            f"{counted(ended.missed_by_captures, 'packet')} of flows that were removed from "
            "memory are missing"
            " in the capture of a tap that they passed"
        )
    if ended.untracked_packets:
        yield (
            f"{counted(ended.untracked_packets, 'packet')} of flows or addresses beyond the"
            " limits: nothing is known of them"
        )


def _capture_quality(case: Case) -> Iterator[str]:
    for capture in case.captures:
        for tap in capture.taps:
            if tap.sampling is not UNSET:
                yield f"{printable(tap.name)} has samples only: loss and reordering are unknown"
            elif tap.dropped_frames:
                yield (
                    f"{printable(tap.name)} dropped {counted(tap.dropped_frames, 'frame')} itself:"
                    " packets missing there may be capture loss"
                )
    silent = [
        tap
        for capture in case.captures
        for tap in capture.taps
        if tap.dropped_frames is None and tap.sampling is UNSET
    ]
    if silent:
        which = "the capture does" if len(silent) == 1 else f"{len(silent)} captures do"
        yield f"{which} not state dropped frames: pcapng from dumpcap or rocescope does"


def _gaps(case: Case) -> Iterator[str]:
    for name, gaps in case.gaps.items():
        yield (
            f"{printable(name)} has {counted(len(gaps), 'gap')} in its capture"
            f" ({printable(gaps[0].reason)}): losses and late packets of flows there, and hops from"
            " and to it, are unknown"
        )


def _one_way(case: Case) -> Iterator[str]:
    alone = [
        flow
        for flow in case.flows
        if flow.data_packets
        and flow.retransmitted_packets is not None
        and flow.transport not in UNANSWERED
        and (flow.dst, flow.src) not in case.hosts_seen
    ]
    if alone:
        yield (
            f"{counted(len(alone), 'flow')} without any packet of the other direction: NAKs,"
            " ACKs and stalls are unknown; capture both directions"
        )


def _one_tap(case: Case) -> Iterator[str]:
    taps = [tap for capture in case.captures for tap in capture.taps if tap.roce_packets]
    if len(taps) == 1:
        yield (
            "one tap: loss after it is visible only in NAKs and retransmissions, marks after "
            "it are not visible; a tap at the other host shows the place, taps before and "
            "after a device separate a bad link, a rate limit and an incast"
        )
    elif taps and case.tap_hops is not None and not case.tap_hops.hops:
        if any(flow.tap_copies for flow in case.flows):
            return  # others tell why the hops are not judged
        yield (
            f"no packet was seen at two of the {number(len(taps))} taps: losses after them are "
            "visible only in NAKs and retransmissions; --fabric shows which tap comes next"
        )


def _parallel_links(case: Case) -> Iterator[str]:
    """Flows that took paths without a tap, in part or whole."""
    partly = sum(
        flow.retransmitted_packets is not None
        and flow.missing_packets is None
        and flow.sampling is UNSET
        and not gaps_in(flow, case.gaps)
        for flow in case.flows
    )
    partly += case.ended.partial_flows
    if partly:
        yield (
            f"{counted(partly, 'flow')} seen only in part: loss there is unknown; capture all"
            " parallel links"
        )
    mixed = sum(lost_or_late(case, flow) for flow in case.flows)
    if mixed:
        yield (
            f"{counted(mixed, 'flow')} with late packets, in part over paths without a tap: whether"
            " packets were lost before the first tap is unknown; capture all parallel links"
        )
    elsewhere = case.ended.untapped_flows + (
        0 if case.tap_hops is None else case.tap_hops.elsewhere
    )
    if elsewhere:
        yield (
            f"{counted(elsewhere, 'flow')} on paths without a tap: hops there are unknown;"
            " capture all parallel links"
        )
    waiting = sum(may_be_answered(case, flow) for flow in case.flows)
    if waiting:
        yield (
            f"{counted(waiting, 'flow')} whose answers may take paths without a tap: whether their"
            " queue pairs are dead is unknown"
        )


def _clocks(case: Case) -> Iterator[str]:
    """Taps whose clock was set: no hop begins or ends there."""
    if case.tap_hops is None:
        return
    taps = case.registry.taps
    for index, name in enumerate(case.tap_hops.names):
        if taps.carrier(index).clock_steps or index in case.tap_hops.set_forward:
            yield (
                f"the clock of {printable(name)} was set: losses and delays right before and after"
                " this tap are unknown"
            )


def _shared(case: Case) -> Iterator[str]:
    """Taps that stand for several: no hop begins or ends there."""
    if case.tap_hops is not None:
        for tap in case.registry.taps.items:
            if tap.shared:
                yield (
                    f"{printable(tap.name)} covers several links: losses and delays right "
                    "before and after them are unknown; analyse fewer links at a time"
                )


def _pauses(case: Case) -> Iterator[str]:
    """The DSCP does not show the priority, and wide windows not how long a queue lasts."""
    priorities = {
        pause.priority
        for capture in case.captures
        for tap in capture.taps
        for pause in tap.pauses
        if pause.priority is not None and pause.first_time_ns is not None
    }
    dscps = unmapped(case) if priorities else []
    if dscps:
        numbers = ", ".join(map(str, sorted(priorities)))
        which = f"priority {numbers}" if len(priorities) == 1 else f"priorities {numbers}"
        some = ", ".join(map(str, dscps[:_DSCPS_NAMED]))
        some += f" and {len(dscps) - _DSCPS_NAMED} more" if len(dscps) > _DSCPS_NAMED else ""
        option = "" if case.dscp_priority is None else " (--dscp-priority)"
        yield (
            f"the priority of DSCP {some} in the switches is unknown{option}: DSCP / 8 decides"
            f" which packets pauses of {which} hold; other waiting packets count as a queue"
        )
    short = {
        tap.name
        for capture in case.captures
        for tap in capture.taps
        for pause in tap.pauses
        if case.tap_hops is not None
        and any(too_short(end - begin, case.tap_hops.window_ns) for begin, end in spans_of(pause))
    }
    if short:
        assert case.tap_hops is not None
        yield (
            f"the duration of queues is known in steps of {duration(case.tap_hops.window_ns)} only:"
            f" queues at {', '.join(map(printable, sorted(short)))} are attributed to the shorter"
            " pauses there if no packet waits longer than twice the pause time"
        )


def _marks(case: Case) -> Iterator[str]:
    data = [flow for flow in case.flows if flow.data_packets]
    if data and not any(flow.congestion.ecn_capable_packets for flow in data):
        yield "no packet is ECN-capable: CE marks cannot show congestion"


def _icrc(case: Case) -> Iterator[str]:
    checked = [capture.icrc for capture in case.captures if capture.icrc is not None]
    cut = sum(count["truncated"] for count in checked)
    if not checked:
        live = any(capture.format == "live" for capture in case.captures)
        how = "analyze FILE --icrc" + " checks those of a capture" * live
        yield f"ICRCs were not checked ({how}): corruption is unknown"
    elif cut:
        yield f"{number(cut)} frames are truncated: their ICRC is unknown; capture whole frames"


def _partly_followed(case: Case) -> Iterator[str]:
    """Packets whose way between taps is known only in part."""
    hops = case.tap_hops
    if hops is None:
        return
    if hops.undecided:
        yield (
            f"{counted(hops.undecided, 'packet')} still between two taps when the captures ended:"
            " whether they arrived is unknown"
        )
    if hops.left:
        yield (
            f"{counted(hops.left, 'packet')} that no later tap saw, of flows that also took "
            "paths without a tap (or its capture ended): whether they arrived is unknown"
        )
    if hops.hidden:
        yield (
            f"{counted(hops.hidden, 'packet')} that no later tap saw, and that a tap with gaps in"
            " its capture may have seen: whether they arrived is unknown"
        )
    yield from hops.fabric_limits
    if hops.hurried:
        yield (
            f"{counted(hops.hurried, 'packet')} tracked for a short time only: more were in flight"
            " than fit in memory; analyse fewer taps or a shorter time"
        )
    if hops.unlogged:
        yield (
            f"{counted(hops.unlogged, 'lost or retransmitted packet')} without an exact time"
            " (more than are kept): their times are estimates"
        )


_CHECKS = (
    _how_it_was_read,
    _gaps,
    _ended,
    _capture_quality,
    _one_way,
    _one_tap,
    _parallel_links,
    _partly_followed,
    _clocks,
    _shared,
    _pauses,
    _marks,
    _icrc,
)
