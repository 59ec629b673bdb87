"""The diagnosis of one analysis: findings, checks that passed, and what no capture can tell."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from textwrap import shorten
from typing import Final

from msgspec import UNSET, UnsetType

from ..results.captures import Ended
from ..results.diagnosis import SEVERITIES, Confidence, Diagnosis, Finding, Kind, Place
from ..results.flow import Flow
from ..summary.trust import capture_of, gaps_in
from ..track.state import REQUESTS, RESPONSES
from ..wire.bth import PSN_HALF, PSN_MASK
from ..words import printable
from .case import Case, lost_or_late, priorities_of, queue_pairs, unmapped
from .finders import captures, delays, hosts, losses, marks, moves, mrc, placement
from .finders import jobs as training_jobs
from .finders.captures import clocks_ahead_ns
from .finders.delays import spans_of, too_short
from .finding import (
    SILENCE_NS,
    counted,
    death_of,
    duration,
    finding,
    may_be_answered,
    number,
    packets_of,
)
from .known import Known, in_order

FINDERS = (
    *captures.FINDERS,
    *delays.FINDERS,
    *mrc.FINDERS,
    *losses.FINDERS,
    *moves.FINDERS,
    *marks.FINDERS,
    *hosts.FINDERS,
    *placement.FINDERS,
    *training_jobs.FINDERS,
)
"""All finders; what they declare decides their order, see `in_order`."""


def diagnose(case: Case) -> Diagnosis:
    """All findings of `case`, worst first, and what was checked without a finding."""
    known = Known(
        peers={**case.likely_peers, **case.peers},
        clocks_ns=clocks_ahead_ns(case),
        priorities=lambda f: priorities_of(case, case.flows[f]),
    )
    findings: list[Finding] = []
    for finder in in_order(FINDERS):
        new = list(finder.find(case, known))
        findings += new
        for cause in new:
            known.add(cause)
    findings = training_jobs.with_costs(case, known.remaining(findings))
    findings.sort(key=rank)
    findings = bounded(case, findings)
    passed = healthy(case, findings)
    text = summary(case, findings, passed)
    return Diagnosis(text, findings, passed, limits(case), case.is_whole)


def rank(item: Finding) -> tuple[int, bool, int, int]:
    """Worst first; of one severity those with a place first, then the most expensive."""
    place = item.place
    has_place = any((place.from_tap, place.to_tap, place.device, place.host, place.capture))
    return SEVERITIES.index(item.severity), not has_place, -(item.cost_ns or 0), item.from_ns


MOST_ALIKE = 20
"""Findings of one kind and severity that are listed one by one."""
_PLACES_NAMED = 3
_PLACES_LETTERS = 10_000

_CONFIDENCE: tuple[Confidence, ...] = ("possible", "likely", "proven")


def bounded(case: Case, findings: Sequence[Finding]) -> list[Finding]:
    """At most `MOST_ALIKE` findings of each kind and severity; worst first, as in `findings`."""
    alike: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for item in findings:
        alike[item.kind, item.severity].append(item)
    kept: list[Finding] = []
    listed: Counter[tuple[str, str]] = Counter()
    for item in findings:
        which = item.kind, item.severity
        listed[which] += 1
        if listed[which] < MOST_ALIKE or len(alike[which]) == MOST_ALIKE:
            kept.append(item)
        elif listed[which] == MOST_ALIKE:
            kept.append(_together(case, alike[which][MOST_ALIKE - 1 :]))
    return kept


def _together(case: Case, alike: Sequence[Finding]) -> Finding:
    """One finding for several of one kind and severity."""
    hits = {flow: 0 for item in alike for flow in item.flows}
    for item in alike:
        for victim in item.affected:
            hits[victim.flow] += victim.packets
    ends = [item.until_ns for item in alike]
    last = case.last_ns if None in ends else max(end for end in ends if end is not None)
    packets, of = sum(item.packets for item in alike), sum(item.of_packets for item in alike)
    places = [_place_in_words(item.place) for item in alike]
    worst = ", ".join(printable(place) for place in places[:_PLACES_NAMED])
    left = len(alike) - _PLACES_NAMED
    and_more = f" and {number(left)} more" if left > 0 else ""
    first = alike[0]
    return finding(
        case,
        first.kind,
        Place(),
        of,
        f"{first.kind} at {number(len(alike))} more places ({worst}{and_more}):"
        f" {packets_of(packets, of)}",
        first.next_step if len({item.next_step for item in alike}) == 1 else _LOOK_FOR_MORE,
        hits=hits,
        span=(min(item.from_ns for item in alike), last),
        confidence=min((item.confidence for item in alike), key=_CONFIDENCE.index),
        evidence=[frame for item in alike for frame in item.evidence[:1]],
        severity=first.severity,
        until_ns=None if None in ends else last,
        costs=any(item.cost_ns is None or item.cost_ns for item in alike),
        packets=packets,
        details={
            "findings": len(alike),
            "places": shorten("; ".join(places), _PLACES_LETTERS, placeholder="; ..."),
        },
    )


_LOOK_FOR_MORE = "look for what these places share: a setting, a software version, one event"


def _place_in_words(place: Place) -> str:
    """The place in a few words."""
    taps = " > ".join(filter(None, (place.from_tap, place.to_tap)))
    device = place.device or place.host or place.capture
    if taps and device:
        return f"{device}, {taps}"
    return device or taps or place.direction or "the network"


def summary(case: Case, findings: Sequence[Finding], healthy: Sequence[str]) -> str:
    """The worst finding; without a fault, what was looked at. `findings`: worst first."""
    faults = [finding for finding in findings if finding.severity != "note"]
    if faults:
        more = f" (and {counted(len(faults) - 1, 'further fault')})" if len(faults) > 1 else ""
        return faults[0].sentence + more
    packets = sum(flow.packets for flow in case.flows) + case.ended.packets
    if not packets:
        return "No RoCE packets: nothing was checked"
    seen = f"{counted(packets, 'packet')} of {counted(case.queue_pairs, 'queue pair')}"
    if not healthy:
        return f"No check of loss, marks or retries applies to these {seen}"
    if case.ended.flows_in_trouble:
        gone = counted(case.ended.flows_in_trouble, "idle flow")
        return (
            f"No fault found in the listed flows; {gone} with anomalies removed from memory: {seen}"
        )
    if not case.is_whole:
        return f"No fault found in the part that was read: {seen}"
    return f"No fault found in {seen}"


# Checks that passed: claims with what they cover, and only for what was really checked.

LOSSES: Final[frozenset[Kind]] = frozenset(
    ("loss", "selective-loss", "blackhole", "outage", "rate-limit", "link-down", "incast")
)


def healthy(case: Case, findings: Sequence[Finding]) -> list[str]:
    """One claim per check that ran on every packet it names and found nothing."""
    sampled = any(flow.sampling is not UNSET for flow in case.flows)
    if case.filtered or sampled:
        return []  # packets that were left out look like loss, or hide it
    kinds = {finding.kind for finding in findings}
    checks = (
        _sequence(case, kinds),
        _hops(case, kinds),
        _answers(case),
        _marks(case, kinds),
        _icrc(case),
    )
    return [claim for claims in checks for claim in claims]


def _sequence(case: Case, kinds: Collection[Kind]) -> Iterator[str]:
    """PSNs of every flow that has any: loss, reordering, duplicates, retransmissions."""
    flows = [flow for flow in case.flows if flow.retransmitted_packets is not None]
    in_part = case.ended.partial_flows or any(flow.missing_packets is None for flow in flows)
    if not flows or in_part:
        return
    every: list[Flow | Ended] = [*flows, case.ended]
    packets = sum(flow.data_packets for flow in flows)
    packets += case.ended.sequenced_packets
    checked = {
        "lost": sum((f.missing_packets or 0) + (f.recovered_packets or 0) for f in every)
        or not LOSSES.isdisjoint(kinds)
        or case.ended.flows_in_trouble,  # their sums leave out flows seen in part
        "retransmitted": sum(f.retransmitted_packets or 0 for f in every),
        "reordered": sum(f.reordered_packets or 0 for f in every) or "reordering" in kinds,
        "duplicated": sum(f.duplicate_packets or 0 for f in every) or "duplication" in kinds,
    }
    none = [name for name, count in checked.items() if not count]
    where = "the first tap" if case.measuring.many_taps else "the tap"
    since = ""
    if "lost" in none and not _from_the_first_psn(case, flows):
        since = ", from the first captured packet of each flow on"
    if none:
        yield (
            f"{counted(packets, 'request and response packet')}: none {_either(none)}"
            f" before {where}{since}"
        )


def _from_the_first_psn(case: Case, flows: Sequence[Flow]) -> bool:
    """Whether CM messages name the PSN with which each flow began: nothing is lost before it."""
    tracker, agreed = case.measuring.tracker, case.measuring.cm.first_psns
    for flow in flows:
        record = tracker.flows[flow.id]
        key = int(record["src"]), int(record["dst"]), int(record["dest_qp"])
        requests, responses = (tracker.stream(flow.id, which) for which in (REQUESTS, RESPONSES))
        if responses["started"] or agreed.get(key) != int(requests["first"]):
            return False
    return not case.ended.sequenced_packets


def _hops(case: Case, kinds: Collection[Kind]) -> Iterator[str]:
    """What entered a hop and left it; nothing while packets may have been lost after a tap."""
    hops = [hop for hop in case.hops if hop.to_tap is not None]
    if (
        not hops
        or (case.tap_hops is not None and (case.tap_hops.left or case.tap_hops.hidden))
        or case.ended.lost_between_taps
        or any(hop.lost_packets for hop in case.hops)
        or not LOSSES.isdisjoint(kinds)
    ):
        return
    passed = sum(hop.passed_packets for hop in hops)
    partly = case.tap_hops is not None and case.tap_hops.undecided and any(_overlap(case))
    while_seen = " while the next tap captured" if partly else ""
    yield f"{counted(len(hops), 'hop')}, {counted(passed, 'packet hop')}: no loss{while_seen}"


def _nacked(flow: Flow) -> bool:
    """Whether the receiver of MRC asks for packets again, such as trimmed ones."""
    answers = None if isinstance(flow.mrc, UnsetType) else flow.mrc.answers
    return answers is not None and any(answers.nacks.values())


def _answers(case: Case) -> Iterator[str]:
    """NAKs, and stalls of queue pairs whose both directions were seen, unless their answers may
    have passed no tap."""
    flows = [flow for flow in case.flows if flow.data_packets and _is_answered(case, flow)]
    every: list[Flow | Ended] = [*case.flows, case.ended]
    acks = sum(flow.ack_packets for flow in every)
    refused = any(flow.naks or flow.rnr_naks for flow in every) or any(map(_nacked, case.flows))
    known = not any(flow.naks is None for flow in case.flows)
    if acks and known and not refused:
        yield f"{counted(acks, 'ACK')}: no NAK, no RNR NAK"
    if case.ended.flows_in_trouble or any(death_of(case, flow) for flow in flows):
        return
    hung = {flow for job in case.training.jobs if job.hang is not None for flow in job.flows}
    unknown = [
        flow
        for flow in flows
        if flow.id in hung or may_be_answered(case, flow) or _may_have_waited(case, flow)
    ]
    checked = queue_pairs(flows) - queue_pairs(unknown)
    if checked:
        yield f"{counted(checked, 'queue pair')}: none stalled"


QUIET_NS = 2 * SILENCE_NS
"""A request that waits so long for its answer is stalled."""


def _may_have_waited(case: Case, flow: Flow) -> bool:
    """Whether the sender waited for a timeout, or a request long for its answer, then or at the
    end; also where a log reports that its queue pair failed. A sender without a request that waits
    has nothing to send."""
    if flow.recovery.timeout_ns is not None or flow.id in case.failed_in_logs:
        return True
    if not flow.request_packets:
        return False  # its peer asks and waits
    waits = flow.message_statistics.completion_ns, flow.latency.request_to_ack_ns
    if any(wait is not None and wait.max >= QUIET_NS for wait in waits):
        return True
    if flow.idle_gaps.max_ns >= QUIET_NS and not _all_timed(flow):
        return True  # one whose answer is not known may have waited
    end_ns = max(capture.last_time_ns or 0 for capture in case.captures)
    return end_ns - flow.last_time_ns >= QUIET_NS and _may_wait_at_end(case, flow)


def _all_timed(flow: Flow) -> bool:
    """Whether the completion time of each message of a flow is known."""
    messages = flow.message_statistics
    timed = 0 if messages.completion_ns is None else messages.completion_ns.count
    return timed >= (messages.count or 0) + (messages.incomplete or 0)


def _may_wait_at_end(case: Case, flow: Flow) -> bool:
    """Whether the last request of a flow may have no answer, or only a part of a READ's."""
    if _all_timed(flow):
        return False
    if case.flows[case.peers[flow.id]].response_packets:
        return True
    progress = case.measuring.troubles.progress(flow.id)
    unanswered = int(progress["run_next"]) - 1 - int(progress["ack_psn"]) & PSN_MASK
    return not progress["acked"] or not progress["run_known"] or 0 < unanswered < PSN_HALF


def _is_answered(case: Case, flow: Flow) -> bool:
    return flow.id in case.peers and flow.retransmitted_packets is not None


def _marks(case: Case, kinds: Collection[Kind]) -> Iterator[str]:
    ended = case.ended
    if "ecn-marking" in kinds or ended.ecn_marked_packets or ended.marked_between_taps:
        return
    capable = sum(flow.congestion.ecn_capable_packets for flow in case.flows)
    if capable and not any(flow.ecn_marked_packets for flow in case.flows):
        yield f"{counted(capable, 'ECN-capable packet')}: none marked CE"


def _icrc(case: Case) -> Iterator[str]:
    counts = [capture.icrc for capture in case.captures if capture.icrc is not None]
    good = sum(count["ok"] for count in counts)
    if good and not any(count["bad"] for count in counts):
        yield f"{counted(good, 'ICRC')}: none wrong"


def _either(names: list[str]) -> str:
    """`lost, reordered or duplicated`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


# What these captures cannot tell, and which tap or option would tell it.

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
                name = printable(capture_of(tap, capture))
                yield (
                    f"{name} dropped {counted(tap.dropped_frames, 'frame')} itself:"
                    " packets missing there may be capture loss"
                )
    silent = {
        capture_of(tap, capture)
        for capture in case.captures
        for tap in capture.taps
        if tap.dropped_frames is None and tap.sampling is UNSET
    }
    if silent:
        which = "the capture does" if len(silent) == 1 else f"{len(silent)} captures do"
        yield f"{which} not state dropped frames: pcapng from dumpcap or rocescope does"


def _cut_headers(case: Case) -> Iterator[str]:
    """What the snap length cuts off, and the snap length that holds it."""
    flows = case.measuring.tracker.flows
    answers, reads = int(flows["cut_answers"].sum()), int(flows["cut_reads"].sum())
    if not answers and not reads:
        return
    what = [f"{counted(answers, 'answer')} without AETH (ACK or NAK)"] if answers else []
    what += [f"{counted(reads, 'READ')} of unknown length"] if reads else []
    held, needed = int(flows["cut_to"].max()), int(flows["cut_needs"].max())
    yield (
        f"the snap length keeps {held} bytes of a frame (without headers of mirrors and tunnels):"
        f" {' and '.join(what)}; capture at least {counted(needed - held, 'byte')} more (tcpdump"
        f" -s {needed}, plus headers of mirrors and tunnels)"
    )


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


def _unpaired(case: Case) -> Iterator[str]:
    """Flows whose answers fit several queue pairs."""
    alone = [flow for flow in case.flows if flow.request_packets and case.has_unknown_answers(flow)]
    if alone:
        pairs = {tuple(sorted((flow.src, flow.dst))) for flow in alone}
        between = " and ".join(map(printable, min(pairs)))
        if len(pairs) > 1:
            between += f" (and {counted(len(pairs) - 1, 'further host pair')})"
        yield (
            f"{counted(len(alone), 'queue pair')} between {between} could not be paired: their"
            " answers fit several of them equally; completion times, stalls and the addressees of"
            " NAKs are unknown there"
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


def _marks_without_ecn(case: Case) -> Iterator[str]:
    data = [flow for flow in case.flows if flow.data_packets]
    if data and not any(flow.congestion.ecn_capable_packets for flow in data):
        yield "no packet is ECN-capable: CE marks cannot show congestion"


def _training(case: Case) -> Iterator[str]:
    """Messages that the view of training jobs leaves out."""
    log = case.measuring.messages.log
    if log is not None and log.grants and log.left_out:
        yield (
            f"training jobs: {counted(log.left_out, 'message')} beyond the limit are not looked at;"
            " analyse a shorter time"
        )


def _unchecked_icrcs(case: Case) -> Iterator[str]:
    checked = [capture.icrc for capture in case.captures if capture.icrc is not None]
    cut = sum(count["truncated"] for count in checked)
    if not checked:
        live = any(capture.format == "live" for capture in case.captures)
        how = "analyze FILE --icrc" + " checks those of a capture" * live
        yield f"ICRCs were not checked ({how}): corruption is unknown"
    elif cut:
        yield f"{number(cut)} frames are truncated: their ICRC is unknown; capture whole frames"


MOST_OVERLAP = 0.9
"""Share of the time that all taps capture, from which it is not worth a line."""


def _overlap(case: Case) -> Iterator[str]:
    """How much of the time all taps capture."""
    assert case.tap_hops is not None
    begin, end = case.tap_hops.overlap() or (0, 0)
    whole = case.last_ns - case.first_ns
    if end - begin < MOST_OVERLAP * whole:
        how = (
            f"overlap for {duration(end - begin)} of {duration(whole)}" if end > begin else "never"
        )
        how += "" if end > begin else " overlap all at once"
        yield (
            f"the captures of all taps {how}, from the first to the last packet of each: what"
            " passed a tap at another time is unknown; begin and end all captures at the same time"
        )


def _partly_followed(case: Case) -> Iterator[str]:
    """Packets whose way between taps is known only in part."""
    hops = case.tap_hops
    if hops is None:
        return
    if hops.undecided:
        yield (
            f"{counted(hops.undecided, 'packet')} that a tap could not see, because its"
            " capture had not begun or had ended: whether they arrived is unknown"
        )
        yield from _overlap(case)
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
    _cut_headers,
    _ended,
    _capture_quality,
    _one_way,
    _unpaired,
    _one_tap,
    _parallel_links,
    _partly_followed,
    _clocks,
    _shared,
    _pauses,
    _marks_without_ecn,
    _training,
    _unchecked_icrcs,
)
