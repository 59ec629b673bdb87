"""What a diagnosis of one view is worth, beside the truth of the run.

A fault of `truth.json` says: the kinds that name it (the best first), the taps before and after it,
the device between them, its packets, its first packet and its flows. The verdict of a view is the
worst one of its faults:

right     A finding of severity warning or above has one of the kinds of the fault, names its device
          or the taps on both sides of it, its number of packets (within what the captures tell, or
          between bounds where no tap is behind the fault; not judged where the view begins late,
          ends early or lacks links) and its onset (within the
          window of the run and the uncertainty that the finding states). A note is enough for a
          fault that deserves no more. It is the only finding of the fault.
narrower  True, but less: the place is wider ("between A and B", "after A"), the kind is one that
          includes the fault (`loss` for a black hole), an effect is named where no tap is on both
          sides of the fault, the onset is off, one fault is several findings, or the number is
          smaller and says "at least".
vague     A true kind without any place, an effect although both sides have taps, only a note, or a
          smaller number that does not say "at least".
silent    Nothing is said of the fault, although the view holds evidence.
unseen    Nothing is said, and the view holds no evidence (counted apart; see `evidence`).
wrong     A warning that no fault explains: on a clean run any; else a kind that the fault has not,
          a place that excludes the fault (another device, a parallel link, the wrong side of a
          tap), no flow of the fault among those affected, or more packets than the fault hit. Where
          links or times are missing, a finding that is only `possible` is not judged.
error     The analysis failed.

A clean run is right without any warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from .packets import LEAST_PACKETS
from .topology import LINKS
from .views import ACKNOWLEDGE, PORTS, Frames, View, way

Verdict = Literal["right", "narrower", "vague", "silent", "unseen", "wrong", "error"]
LEVELS: list[Verdict] = ["silent", "vague", "narrower", "right"]
VERDICTS: list[Verdict] = ["right", "narrower", "vague", "silent", "wrong", "unseen", "error"]
SEVERE = ("critical", "warning")
EXACT = ("lost", "changed", "copied", "fragmented")
LOSSES = ("loss", "selective-loss", "blackhole", "outage", "rate-limit", "incast", "link-down")
WIDER = {
    "loss": ("loss",),
    "selective-loss": ("loss", "blackhole"),
    "blackhole": ("loss", "outage"),
    "outage": ("loss", "link-down"),
    "link-down": ("loss", "rehash"),
    "rate-limit": ("loss",),
    "incast": ("loss", "collision"),
    "mtu-mismatch": ("loss",),
    "collision": ("loss", "rate-limit"),
    "mrc-path": ("loss",),
}
"""By the best kind of a fault: kinds that are true of it as well."""
WAITS = ("timeout-recovery", "retry-storm", "stalled")
EFFECTS = {
    **dict.fromkeys(WIDER, WAITS),
    "rate-limit": (*WAITS, "queueing", "reordering", "ecn-marking"),
    "incast": (*WAITS, "queueing", "reordering", "ecn-marking"),
    "queueing": (*WAITS, "reordering"),
    "collision": (*WAITS, "queueing"),
    "rehash": ("reordering",),
    "reordering": WAITS,
    "stalled": ("timeout-recovery", "retry-storm", "loss"),
    "timeout-recovery": ("retry-storm", "stalled", "loss"),
    "retry-storm": ("timeout-recovery", "stalled", "loss"),
    "receiver-not-ready": WAITS,
    "fatal-nak": WAITS,
    "corruption": (*WAITS, "loss"),
    "pause": (*WAITS, "queueing"),
}
"""What hosts do because of a fault."""
_NODE = re.compile(r"\b(H\d|leaf\d|spine\d)(?::swp(\d+))?\b")
_TELLS_PACKETS = re.compile(r"\bpackets?\b|at least|everything")
_AT_MOST = re.compile(r"\(at most ([\d,]+)\)")
_LATE = re.compile(r"\blate\b")
_ADDRESS = re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b")


def host_of(address: str) -> str:
    """H3 of 10.2.3.10 and fd10:2:3::10 (the lab), of 10.0.2.3 and fd00::2:3 (the simulator)."""
    numbers = re.findall(r"[0-9a-f]+", address)
    return f"H{numbers[-2] if numbers[-1] == '10' else numbers[-1]}"


@dataclass
class Named:
    """What a text names of the fabric: a link, or devices."""

    link: str | None = None
    devices: set[str] = field(default_factory=set)


def named(text: str | None, ports: dict[str, tuple[str, str]]) -> Named:
    """Links, devices, ports and Ethernet addresses in a text. ports: as `views.devices`.

    Two Ethernet addresses or names are the ends of a link; one is the device that has it.
    """
    if text is None:
        return Named()
    found = [ports[address] for address in _ADDRESS.findall(text) if address in ports]
    links = {link for _, link in found}
    nodes = [device for device, _ in found]
    for node, number in _NODE.findall(text):
        nodes.append(node)
        if number and int(number) <= len(PORTS.get(node, ())):
            links.add(PORTS[node][int(number) - 1])
    ends = list(dict.fromkeys(nodes))
    if len(ends) == 2:
        both = [link for link in LINKS if set(link.split("-")) == set(ends)]
        return Named(both[0]) if both else Named(None, set(ends))
    if ":swp" in text and len(links) == 1:
        return Named(links.pop())
    return Named(None, set(ends))


@dataclass
class Judgement:
    """The verdict of one view of one run."""

    view: str
    verdict: Verdict
    reasons: list[str] = field(default_factory=list)


@dataclass
class _Fit:
    """How well a finding describes a fault."""

    level: int
    """Index in LEVELS."""
    reasons: list[str]
    is_of_another: bool = False
    """The finding describes another fault better."""


def judge(
    view: View,
    truth: dict[str, Any],
    findings: list[dict[str, Any]],
    ports: dict[str, tuple[str, str]],
) -> Judgement:
    """The verdict of the findings of a view. ports: Ethernet addresses of the run (`devices`)."""
    faults = truth["expected"]
    fits: list[list[_Fit]] = [[] for _ in faults]
    wrong = []
    for finding in findings:
        is_severe = finding["severity"] in SEVERE
        why, explained = [], []
        for fault, of_fault in zip(faults, fits, strict=True):
            fit = _fit(view, fault, finding, ports, truth.get("onset_window_ns", 100_000_000))
            if isinstance(fit, str):
                why.append(fit)
                continue
            if not is_severe and fault["severity"] != "note":
                fit = _Fit(min(fit.level, 1), [*fit.reasons, "only a note"])
            explained.append(fit)
            of_fault.append(fit)
        for fit in explained:
            fit.is_of_another = fit.level < max(each.level for each in explained)
        if not explained and is_severe:
            if not view.is_whole and finding["confidence"] == "possible" and faults:
                continue
            wrong.append(f"{'; '.join(dict.fromkeys(why)) or 'clean'}: {words(finding)}")
    if wrong:
        return Judgement(view.name, "wrong", wrong)
    levels, reasons, unseen = [], [], 0
    for fault, of_fault in zip(faults, fits, strict=True):
        if not fault["required"]:
            continue
        best = max(of_fault, key=lambda fit: fit.level, default=None)
        if best is None:
            if not evidence(view, fault):
                unseen += 1
                continue
            levels.append(0)
            reasons.append(f"nothing about {fault_words(fault)}")
            continue
        level = best.level
        mine = [fit for fit in of_fault if fit.level > 1 and not fit.is_of_another]
        if level == 3 and len(mine) > 1:
            level = 2
            reasons.append("several findings of one fault")
        levels.append(level)
        reasons += best.reasons
    if unseen and not levels:
        return Judgement(view.name, "unseen")
    return Judgement(view.name, LEVELS[min(levels, default=3)], reasons)


def _fit(
    view: View,
    fault: dict[str, Any],
    finding: dict[str, Any],
    ports: dict[str, tuple[str, str]],
    window_ns: int,
) -> _Fit | str:
    """How a finding describes a fault, or why it does not."""
    best, kind = fault["kinds"][0], finding["kind"]
    effects = EFFECTS.get(best, WAITS)
    if kind in fault["kinds"]:
        level, reasons = 3, []
    elif kind in WIDER.get(best, ()):
        level, reasons = 2, [f"{kind} for {best}"]
    elif kind in effects or (best == "reordering" and _LATE.search(finding["sentence"])):
        is_between = has_both_sides(view, fault)
        level, reasons = (1 if is_between else 2), [f"only the effect {kind}"]
    else:
        return f"{kind} is not {best}"
    place = _place(view, fault, finding, ports)
    if isinstance(place, str):
        return place
    if not _shares_victims(fault, finding):
        return "other flows"
    if view.kind == "one_host" and kind in effects:
        place = max(place, 2)  # the victims are what a host's link shows
    if place < level:
        level = place
        reasons.append("no place" if place == 1 else "a wider place")
    if kind not in effects or kind in fault["kinds"]:
        number = _number(view, fault, finding)
        if number is not None:
            if number[0] < 0:
                return number[1]
            level = min(level, number[0])
            reasons.append(number[1])
    error = _onset_error_ns(view, fault, finding)
    if level == 3 and error > window_ns + (finding.get("onset_uncertainty_ns") or 0):
        level = 2
        reasons.append(f"onset {error / 1e6:.0f} ms off")
    return _Fit(level, reasons)


def _place(
    view: View,
    fault: dict[str, Any],
    finding: dict[str, Any],
    ports: dict[str, tuple[str, str]],
) -> int | str:
    """Level of the place: 3 exact, 2 wider, 1 none; or the contradiction."""
    place = finding["place"]
    ends = {name: _end(place, name, ports) for name in ("from", "to")}
    device = named(place["device"], ports).devices | ends["from"].devices | ends["to"].devices
    if not (fault["capture"] or fault["device"] or fault["host"]):
        return 3
    if fault["capture"]:
        return 3 if fault["capture"] in (place["capture"], *(e.link for e in ends.values())) else 1
    before, after = ends["from"].link, ends["to"].link
    victims = {(src, dst) for src, dst, *_ in fault["affected"]}
    named_flows = {(each["src"], each["dst"]) for each in finding["affected"]}
    # The way of answers is not judged: they wait for what the fault does to data.
    for name, link in (("from", before), ("to", after)):
        sides = {_side(fault, host_of(src), host_of(dst), link) for src, dst in victims}
        if link is not None and victims and sides == {None}:
            return f"place: {link} is not on the way"
        judged = not named_flows or victims & named_flows
        if judged and sides - {None, "either", name}:
            return f"place: {name} {link}"
    if fault["device"]:
        allowed = {fault["device"], *fault.get("neighbours", ())}
        if finding["kind"] == fault["kinds"][0]:
            allowed.add(fault.get("other_end"))  # of the link that failed
        if place["device"] and device and not device & allowed:
            return f"place: {'/'.join(sorted(device))} for {fault['device']}"
        if fault["device"] in device and len(device) == 1:
            return 3
        if before in fault["from_taps"] and after in fault["to_taps"]:
            return 3
    if fault["host"]:
        is_host = place["host"] == fault["host"] or host_of(fault["host"]) in device
        if is_host:
            return 3
        if place["host"]:
            return 2
    if before or after or device:
        return 2
    return _outside(view, fault, place["direction"])


def _end(place: dict[str, Any], name: str, ports: dict[str, tuple[str, str]]) -> Named:
    """What the fields of one end of a place name (`from_tap`, and others that begin so): a link
    rather than devices."""
    texts = [text for field, text in place.items() if field.startswith(f"{name}_")]
    found = [named(text, ports) for text in texts]
    return max(found, key=lambda each: (each.link is not None, len(each.devices)))


def _outside(view: View, fault: dict[str, Any], direction: str | None) -> int | str:
    """Level of a place that is "before the tap" or "after the tap" of no tap by name: of all links
    of the view. Where a mirror has several links of one way, or a tap may have ended before, this
    says nothing."""
    if direction not in ("before the tap", "after the tap"):
        return 1
    side = "to" if direction == "before the tap" else "from"
    links = [LINKS[number] for number in np.unique(view.frames.link).tolist()]
    sides, is_clear = set(), view.kind not in UNLIKE_TIMES
    for src, dst in {(src, dst) for src, dst, *_ in fault["affected"]}:
        stages = [set(stage) & set(links) for stage in way(host_of(src), host_of(dst))]
        is_clear &= sum(map(bool, stages)) < 2
        for link in set().union(*stages):
            sides.add(_side(fault, host_of(src), host_of(dst), link))
    sides -= {None, "beside", "either"}
    if sides <= {side}:
        return 2
    is_clear |= len(view.files) > 1 and view.kind not in UNLIKE_TIMES
    return f"place: {direction}" if is_clear else 1


def _side(fault: dict[str, Any], src: str, dst: str, link: str | None) -> str | None:
    """On the way of a victim: whether a link is before (`from`) or after (`to`) the fault; `beside`
    if it is parallel to the links around the fault; `either` if the fault has two hops, before and
    after it; None: not on this way."""
    if link is None:
        return None
    stages = way(src, dst)
    at = next((i for i, links in enumerate(stages) if link in links), None)
    if at is None:
        return None
    last = max((i for i, links in enumerate(stages) if set(links) & set(fault["from_taps"])),
               default=-1)  # fmt: skip
    if link in fault["from_taps"] and link in fault["to_taps"]:
        return "either"
    if at == last and link not in fault["from_taps"]:
        return "beside"
    if at == last + 1 and fault["to_taps"] and link not in fault["to_taps"]:
        return "beside"
    return "from" if at <= last else "to"


def _shares_victims(fault: dict[str, Any], finding: dict[str, Any]) -> bool:
    """Whether a flow of the finding is one of the fault, or goes between the hosts of one."""
    if not finding["affected"] or not fault["affected"]:
        return True
    pairs = {frozenset((src, dst)) for src, dst, *_ in fault["affected"]}
    return any(frozenset((each["src"], each["dst"])) in pairs for each in finding["affected"])


def _number(view: View, fault: dict[str, Any], finding: dict[str, Any]) -> tuple[int, str] | None:
    """(level, reason) where the number of packets lowers it; -1: it is false.

    A finding that tells no number of packets (of flows that moved, say) is not judged by it.
    """
    if fault["count"] not in EXACT or fault["packets"] is None:
        return None
    if not _TELLS_PACKETS.search(finding["sentence"]):
        return None
    said, seen = finding["packets"], set(np.unique(view.frames.flow).tolist())
    unsure = fault["packets"] - fault["sure_packets"]
    most = sum(
        packets or 0
        for (src, dst, qp, packets) in fault["affected"]
        if _flow_number(src, dst, qp) in seen
    )
    if "which queue pairs" in finding["sentence"]:  # NAKs prove losses that the view does not show
        most = sum(
            each[3] or 0 for each in fault["affected"] if each[1] == finding["place"]["host"]
        )
    least = most - unsure
    if not has_both_sides(view, fault):  # lost ACKs leave no trace
        least -= _lost_acks(view.frames, fault)
    if finding["kind"] not in (*LOSSES, "ecn-marking", "duplication", "dscp-mismatch"):
        return None
    if said > most * 1.1 + 2:
        return -1, f"{said} packets for {most}"
    if not view.is_whole and view.kind not in PARTS_OF_LINKS:
        return None
    if least <= said <= most:
        return None
    bound = _AT_MOST.search(finding["sentence"])
    if bound and not fault["to_taps"] and said <= most <= int(bound[1].replace(",", "")):
        return None
    is_near = said >= 0.9 * least
    says_so = "at least" in finding["sentence"]
    return (2 if is_near or says_so else 1), f"{said} packets for {most}"


def _lost_acks(frames: Frames, fault: dict[str, Any]) -> int:
    """Lost packets of the flows of which a view has ACKs and NAKs only."""
    rows = frames.is_roce & (frames.opcode != ACKNOWLEDGE)
    with_data, seen = (set(np.unique(frames.flow[r]).tolist()) for r in (rows, frames.is_roce))
    return sum(
        packets or 0
        for (src, dst, qp, packets) in fault["affected"]
        if (number := _flow_number(src, dst, qp)) in seen and number not in with_data
    )


UNLIKE_TIMES = ("staggered", "count")
"""Views whose files begin or end at different times."""
PARTS_OF_LINKS = ("uplinks", "uplinks_one_file", "one_link", "all_but_one", "one_host")
"""Views of some links, of the whole time."""


def _onset_error_ns(view: View, fault: dict[str, Any], finding: dict[str, Any]) -> int:
    """Distance from the interval between the beginning of the fault and its first packet, or the
    beginning of the view."""
    if fault["from_ns"] is None or fault["set_ns"] is None:
        return 0
    start = int(view.frames.time_ns[0])
    first, begun = max(fault["from_ns"], start), max(fault["set_ns"], start)
    if view.kind in UNLIKE_TIMES:
        begun = min(begun, fault["set_ns"])
        first = max(first, *(int(frames.time_ns[0]) for frames in view.files.values()))
    at = finding["from_ns"]
    return max(begun - at, at - first, 0)


# What a view shows.


def has_both_sides(view: View, fault: dict[str, Any]) -> bool:
    """Whether the view has a tap right before the fault and one right after it, while it lasts."""
    links = {LINKS[number] for number in np.unique(view.frames.link).tolist()}
    is_around = links & set(fault["from_taps"]) and links & set(fault["to_taps"])
    times = view.frames.time_ns
    is_over = fault["until_ns"] is not None and fault["until_ns"] < times[0]
    begins_later = fault["from_ns"] is not None and fault["from_ns"] > times[-1]
    return bool(is_around) and not (is_over or begins_later)


EFFECTS_NS = 50_000_000
"""Retransmissions come so soon, and also later."""


def _during(view: View, fault: dict[str, Any]) -> Frames:
    """Frames of the time of a fault and of the time after it that shows its effects."""
    frames = view.frames
    rows = np.ones(len(frames), bool)
    if fault["from_ns"] is not None:
        rows &= frames.time_ns >= fault["from_ns"]
    if fault["until_ns"] is not None:
        rows &= frames.time_ns <= fault["until_ns"] + EFFECTS_NS
    return frames.take(rows)


def evidence(view: View, fault: dict[str, Any]) -> bool:
    """Whether the view shows a fault, by its frames alone.

    Losses: taps on both sides of the fault (with at least five of its packets), or at least five
    times a PSN of a victim goes back or is NAKed at one link. Marks: five marked packets. Moves:
    three flows on two parallel links. Delays: both sides. Others: the flows themselves.
    """
    frames = _during(view, fault)
    if not len(frames) or (fault["packets"] or LEAST_PACKETS) < LEAST_PACKETS:
        return False
    if fault["count"] == "moved":
        return _moved_flows(view, fault) >= 3
    if fault["count"] == "changed":
        shows = has_both_sides(view, fault)
        return shows or int((frames.is_roce & (frames.ecn == 3)).sum()) >= LEAST_PACKETS
    if fault["count"] == "delayed":
        return has_both_sides(view, fault)
    if fault["count"] in ("lost", "overtaken") or "loss" in fault["kinds"]:
        return has_both_sides(view, fault) or _rewinds(frames, fault) >= LEAST_PACKETS
    return bool(_of_victims(frames, fault).sum() >= LEAST_PACKETS)


def _flow_number(src: str, dst: str, dest_qp: int) -> int:
    """As `Frames.flow`."""
    return int(host_of(src)[1:]) << 28 | int(host_of(dst)[1:]) << 24 | dest_qp


def _of_victims(frames: Frames, fault: dict[str, Any]) -> np.ndarray:
    numbers = [_flow_number(src, dst, qp) for src, dst, qp, *_ in fault["affected"]]
    return frames.is_roce & np.isin(frames.flow, numbers)


def _rewinds(frames: Frames, fault: dict[str, Any]) -> int:
    """How often a data packet of a victim has a PSN at or below an earlier one at the same link,
    and how many NAKs go from the destination of a victim to its source."""
    rows = _of_victims(frames, fault) & (frames.opcode != ACKNOWLEDGE)
    part = frames.take(rows)
    order = np.lexsort((np.arange(len(part)), part.flow, part.link))
    flow, link, psn = part.flow[order], part.link[order], part.psn[order]
    same = (flow[1:] == flow[:-1]) & (link[1:] == link[:-1])
    back = (psn[1:] - psn[:-1]) & 0xFFFFFF
    rewinds = int((same & ((back == 0) | (back >= 1 << 23))).sum())
    source, target = frames.ends
    pairs = {(host_of(dst), host_of(src)) for src, dst, *_ in fault["affected"]}
    naks = sum(
        int((frames.is_nak & (source == int(a[1:])) & (target == int(b[1:]))).sum())
        for a, b in pairs
    )
    return rewinds + naks


def _moved_flows(view: View, fault: dict[str, Any]) -> int:
    """Victims of which the view sees at least five packets on each of two links of one stage."""
    frames = view.frames
    part = frames.take(_of_victims(frames, fault))
    layer = np.array([link.split("-")[0] if link[0] != "H" else "" for link in LINKS])[part.link]
    moved = 0
    for flow in np.unique(part.flow):
        rows = part.flow == flow
        for leaf in set(layer[rows].tolist()) - {""}:
            counts = np.unique(part.link[rows & (layer == leaf)], return_counts=True)[1]
            if (counts >= LEAST_PACKETS).sum() > 1:
                moved += 1
                break
    return moved


# Words for people.


def words(finding: dict[str, Any]) -> str:
    return f"{finding['severity']} {finding['kind']}: {finding['sentence']}"


def fault_words(fault: dict[str, Any]) -> str:
    where = fault["device"] or fault["host"] or fault["capture"]
    hops = f" {'/'.join(fault['from_taps'])} -> {'/'.join(fault['to_taps'])}"
    return f"{fault['kinds'][0]} at {where}{hops}, {fault['packets']} packets"


def table(judgements: Iterable[Judgement]) -> str:
    """A Markdown table: kinds of views and the number of each verdict."""
    counts: dict[str, dict[str, int]] = {}
    for judgement in judgements:
        row = counts.setdefault(judgement.view.split(":")[0], dict.fromkeys(VERDICTS, 0))
        row[judgement.verdict] += 1
    lines = [f"| view | {' | '.join(VERDICTS)} |", "|---" * (len(VERDICTS) + 1) + "|"]
    for kind, row in counts.items():
        lines.append(f"| {kind} | {' | '.join(str(row[verdict]) for verdict in VERDICTS)} |")
    total = [sum(row[verdict] for row in counts.values()) for verdict in VERDICTS]
    lines.append(f"| all | {' | '.join(map(str, total))} |")
    return "\n".join(lines)
