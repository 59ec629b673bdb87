"""The diagnosis of a run's captures beside its truth."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .packets import LEAST_PACKETS, Flow, flows_in, stages

ONSET_WINDOW_NS = 100_000_000
EXACT = ("lost", "changed", "copied", "damaged", "paused", "fragmented")
"""Of these the captures tell the number."""
SEVERE = ("critical", "warning")


@dataclass
class Match:
    """A finding that names a fault rightly, and how well."""

    truth: dict[str, Any]
    finding: dict[str, Any]

    @property
    def packets_right(self) -> bool | None:
        """None: no number is the only right one."""
        if self.truth["count"] not in EXACT:
            return None
        return self.truth["sure_packets"] <= self.finding["packets"] <= self.truth["packets"]

    @property
    def onset_error_ns(self) -> int | None:
        """Distance from the interval between the beginning of the fault and its first packet."""
        at, begun, first = (self.finding["from_ns"], self.truth["set_ns"], self.truth["from_ns"])
        return None if begun is None or first is None else max(begun - at, at - first, 0)

    @property
    def onset_right(self) -> bool | None:
        error = self.onset_error_ns
        uncertain = self.finding.get("onset_uncertainty_ns") or 0
        return None if error is None else error <= ONSET_WINDOW_NS + uncertain

    @property
    def affected(self) -> tuple[int, int, int]:
        """Queue pairs: named rightly, named, true."""
        true = {tuple(flow[:3]) for flow in self.truth["affected"]}
        named = {_flow(each) for each in self.finding["affected"]}
        return len(true & named), len(named), len(true)


@dataclass
class Score:
    """One run: what was found, missed and made up."""

    name: str
    required: int = 0
    severe: int = 0
    """Findings of severity warning or critical."""
    matches: list[Match] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)
    """Findings beside the truth that say that the captures cannot tell."""
    error: str | None = None

    @property
    def right(self) -> bool:
        return not (self.missed or self.wrong or self.error)


def diagnosis(captures: Sequence[Path], *more: str) -> list[dict[str, Any]]:
    """The findings of `rocescope analyze`; AssertionError if it fails."""
    command = [sys.executable, "-m", "rocescope", "analyze", *map(str, captures)]
    done = subprocess.run(
        [*command, "--format", "json", "--progress", "none", *more],
        capture_output=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads(done.stdout)["diagnosis"]["findings"]


def score(folder: Path, without: str | None = None) -> Score:
    """How well the diagnosis of a folder's captures agrees with its truth.json.

    `without`: the tap that is not analysed. Next to it one end of the place is enough, and other
    findings may be possible ones.
    """
    truth = json.loads((folder / "truth.json").read_text())
    result = Score(folder.name)
    for fault in truth["expected"]:
        fault["one_end"] = without in [*fault["from_taps"], *fault["to_taps"]]
        fault["required"] &= without is None or fault["capture"] != without
    captures = [path for path in folder.glob("*.pcap.gz") if _tap(path.name) != without]
    try:
        findings = diagnosis(sorted(captures), *truth["options"])
    except (AssertionError, KeyError) as error:
        result.error = str(error).strip().splitlines()[-1]
        findings = []
    return compare(result, truth["expected"], findings, without is not None)


EFFECTS = ["loss", "reordering", "timeout-recovery", "retry-storm", "stalled", "queueing"]
"""What few taps show of a fault that makes hosts wait or retransmit."""


def score_few(folder: Path, taps: Sequence[str]) -> Score:
    """As `score`, of the captures of these taps alone: faults between two of them as always, others
    by their effects, on the right side of a tap. Required are losses of flows that pass a tap."""
    truth = json.loads((folder / "truth.json").read_text())
    captures = [folder / f"{tap}.pcap.gz" for tap in sorted(taps)]
    passing = set().union(*map(flows_in, captures))
    for fault in truth["expected"]:
        between = set(taps) & set(fault["from_taps"]) and set(taps) & set(fault["to_taps"])
        hit = sum(n or 0 for *flow, n in fault["affected"] if Flow(*flow) in passing)
        fault["required"] &= fault["count"] == "lost" and hit >= LEAST_PACKETS
        if not between:
            fault["few"] = True
            fault["kinds"] += [kind for kind in EFFECTS if kind not in fault["kinds"]]
    result = Score(f"{folder.name} {'+'.join(sorted(taps))}")
    try:
        findings = diagnosis(captures, *truth["options"])
    except (AssertionError, KeyError) as error:
        result.error = str(error).strip().splitlines()[-1]
        findings = []
    return compare(result, truth["expected"], findings, blind=True)


def on_the_right_side(finding: dict[str, Any], truth: dict[str, Any]) -> bool:
    """Whether the finding is about hosts of a fault, and a tap that it names is before or after the
    fault as it says. The answers' way is not judged: they wait for what the fault does to data."""
    between = {(each["src"], each["dst"]) for each in finding["affected"]}
    hit = {(src, dst) for src, dst, *_ in truth["affected"]}
    if not between & hit:
        return bool(between & {(dst, src) for src, dst in hit})
    place, fault = finding["place"], truth["from_taps"]
    for src, dst in between & hit:
        way = stages(src, dst)
        last = max((at for at, taps in enumerate(way) if set(taps) & set(fault)), default=-1)
        for end, tap in (("from_tap", place["from_tap"]), ("to_tap", place["to_tap"])):
            at = next((at for at, taps in enumerate(way) if _tap(tap) in taps), None)
            if at is not None and (at <= last) != (end == "from_tap"):
                return False
    return True


def compare(
    result: Score,
    expected: list[dict[str, Any]],
    findings: list[dict[str, Any]],
    blind: bool = False,
) -> Score:
    """Every required fault needs one finding; every severe finding needs its fault. blind: unless
    it says that it is only possible."""
    severe = [finding for finding in findings if finding["severity"] in SEVERE]
    result.severe = len(severe)
    used: list[dict[str, Any]] = []
    for truth in expected:
        if not truth["required"]:
            continue
        result.required += 1
        allowed = findings if truth["severity"] == "note" else severe
        found = [f for f in allowed if names(f, truth) and not any(f is u for u in used)]
        found.sort(key=lambda f: truth["kinds"].index(f["kind"]))
        if found:
            used.append(found[0])
            result.matches.append(Match(truth, found[0]))
        else:
            result.missed.append(_missed(truth, findings))
    free = [truth for truth in expected if not truth["required"]]
    for finding in severe:
        if any(finding is u for u in used) or any(names(finding, truth) for truth in free):
            continue
        if blind and finding["confidence"] == "possible":
            result.unsure.append(_words(finding))
            continue
        twice = any(names(finding, truth) for truth in expected)
        result.wrong.append(("twice: " if twice else "false: ") + _words(finding))
    return result


def names(finding: dict[str, Any], truth: dict[str, Any]) -> bool:
    """Whether a finding has the kind and the place of a fault."""
    return finding["kind"] in truth["kinds"] and in_place(finding, truth)


def in_place(finding: dict[str, Any], truth: dict[str, Any]) -> bool:
    place = {name: value for name, value in finding["place"].items() if value is not None}
    first, second = _tap(place.get("from_tap")), _tap(place.get("to_tap"))
    if truth["capture"]:
        return truth["capture"] in (_tap(place.get("capture")), first, second)
    if truth["host"]:
        host = truth["host"]
        named = {_flow(each) for each in finding["affected"]}
        victims = {tuple(flow[:3]) for flow in truth["affected"]}
        return place.get("host") == host or bool(named & victims) or _last(first, truth)
    if truth.get("few"):
        return on_the_right_side(finding, truth)
    if truth["device"] is None:
        return True
    if truth.get("one_end"):
        ends = first in truth["from_taps"] or second in truth["to_taps"] or "device" in place
        return ends and place.get("device") in (None, truth["device"])
    agree = [
        place.get("device") in (None, truth["device"]),
        first is None or first in truth["from_taps"],
        second is None or second in truth["to_taps"],
    ]
    return all(agree) and any(name in place for name in ("device", "from_tap", "to_tap"))


def _last(tap: str | None, truth: dict[str, Any]) -> bool:
    """Whether only the host comes after a tap."""
    return not truth["to_taps"] and tap in truth["from_taps"]


def _missed(truth: dict[str, Any], findings: list[dict[str, Any]]) -> str:
    where = truth["device"] or truth["host"] or truth["capture"]
    said = f"{truth['kinds'][0]} at {where}"
    if truth["to_taps"]:
        said += f" {'/'.join(truth['from_taps'])} -> {'/'.join(truth['to_taps'])}"
    if truth["packets"]:
        said += f", {truth['packets']} of {truth['of_packets']} packets"
    near = [f for f in findings if f["kind"] in truth["kinds"] or in_place(f, truth)]
    return said + "".join(f"\n      said: {_words(f)}" for f in near[:3])


def _words(finding: dict[str, Any]) -> str:
    place = {name: value for name, value in finding["place"].items() if value is not None}
    where = " ".join(f"{name}={_tap(str(value))}" for name, value in place.items())
    said = f"{finding['severity']} {finding['kind']} {finding['packets']} packets {where}"
    return f"{said}\n      {finding['sentence']}"


def _flow(affected: dict[str, Any]) -> tuple[str, str, int]:
    return affected["src"], affected["dst"], affected["dest_qp"]


def _tap(name: str | None) -> str | None:
    return None if name is None else name.rsplit("/", 1)[-1].split(".pcap")[0]


# Words for people.


def line(score: Score) -> str:
    """One run: what is right about it, then what is wrong."""
    head = f"{score.name:24} {'right' if score.right else 'WRONG':5} "
    head += f"found {len(score.matches)} of {score.required}, wrong {len(score.wrong)}"
    rows = [head]
    for match in score.matches:
        right, named, true = match.affected
        packets = {True: "exact", False: "WRONG", None: "-"}[match.packets_right]
        error = match.onset_error_ns
        onset = "-" if error is None else f"{error / 1e6:.0f} ms off"
        onset += "" if match.onset_right in (True, None) else " WRONG"
        numbers = f"{match.finding['packets']} ({match.truth['packets']})"
        rows.append(
            f"   {match.finding['kind']}: packets {numbers} {packets}, onset {onset},"
            f" queue pairs {right} right of {named} named, {true} true"
        )
    rows += [f"   cannot tell: {text}" for text in score.unsure]
    rows += [f"   missed: {text}" for text in score.missed]
    rows += [f"   {text}" for text in score.wrong]
    rows += [f"   error: {score.error}"] if score.error else []
    return "\n".join(rows)


def totals(scores: Sequence[Score]) -> str:
    """Precision and recall of all runs, and of what the right findings say."""
    matches = [match for score in scores for match in score.matches]
    required, found = sum(score.required for score in scores), len(matches)
    wrong = sum(len(score.wrong) for score in scores)
    unsure = sum(len(score.unsure) for score in scores)
    judged = found + wrong
    packets = [m.packets_right for m in matches if m.packets_right is not None]
    onsets = [m.onset_right for m in matches if m.onset_right is not None]
    right, named, true = (
        sum(column) for column in zip(*[m.affected for m in matches if m.affected[2]], strict=True)
    ) if any(m.affected[2] for m in matches) else (0, 0, 0)  # fmt: skip
    first = sum(m.finding["kind"] == m.truth["kinds"][0] for m in matches)
    return "\n".join(
        [
            f"{sum(score.right for score in scores)} of {len(scores)} runs entirely right",
            f"precision {_share(found, judged)} of findings,"
            f" recall {_share(found, required)} of faults, {unsure} findings that cannot tell",
            f"of the faults found: the best kind {_share(first, found)},"
            f" packets exact {_share(sum(packets), len(packets))},"
            f" onset within its window {_share(sum(onsets), len(onsets))}",
            f"queue pairs: precision {_share(right, named)}, recall {_share(right, true)}",
        ]
    )


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.0f} %)" if whole else "0 of 0"
