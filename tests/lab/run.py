"""Run a scenario: a folder of compressed captures and truth.json."""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import time
from pathlib import Path
from typing import Any

from .packets import LEAST_PACKETS, Captured, Hits, Hop
from .rules import Attached
from .scenario import Expected, Lab, Scenario, all_hops
from .topology import LINKS, SNAP_BYTES, Captures, Fabric, address
from .traffic import Running

LEAD_S = 0.4
"""Faults of the whole run begin in this time before the traffic."""


class Useless(Exception):
    """The fault hit nothing that the captures could show, or this machine added a fault."""


def run(scenario: Scenario, folder: Path) -> dict[str, Any]:
    """What happened and was captured, written to the folder too.

    AssertionError if a capture dropped packets, or a counter disagrees with the captures.
    """
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    times: dict[int, int] = {}
    with contextlib.ExitStack() as stack:
        fabric = stack.enter_context(Fabric(scenario.hash_seeds))
        rules = [
            stack.enter_context(contextlib.closing(Attached(rule, fabric)))
            for rule in scenario.rules
        ]
        lab = Lab(fabric, rules)
        snap_bytes = 0 if scenario.traffic.icrc else SNAP_BYTES
        captures = stack.enter_context(Captures(fabric, folder, snap_bytes))
        with Running(scenario.traffic, fabric) as running:
            start = time.monotonic() + LEAD_S
            start_ns = time.time_ns() + int(LEAD_S * 1e9)
            running.start(start)
            for number, step in sorted(enumerate(scenario.steps), key=lambda each: each[1].at_s):
                time.sleep(max(0.0, start + step.at_s - time.monotonic()))
                times[number] = time.time_ns()
                step.do(lab)
        hits = [rule.hits for rule in rules]
    assert not any(captures.drops.values()), f"captures dropped packets: {captures.drops}"
    if _disturbed(scenario, list(running.results.values())):
        raise Useless("this machine lost packets, or hosts waited too long for it")
    captured = Captured(folder)
    assert not captured.missed(), "captures missed packets without saying so"
    # A busy machine delays packets in routers that have no fault: that is true, too.
    waits = [
        Expected(["queueing"], hop, begins=None, required=False)
        for hop in all_hops()
        if captured.waiting(hop) and not any(_overlap(hop, each.hop) for each in scenario.expected)
    ]
    truth = {
        "kind": scenario.kind,
        "family": scenario.traffic.family,
        "start_ns": start_ns,
        "end_ns": start_ns + int(scenario.traffic.seconds * 1e9),
        "rate": scenario.traffic.rate,
        "options": [*["--icrc"] * scenario.traffic.icrc, *scenario.options],
        "packets": sum(len(captured.by_link[link]) for link in LINKS if link[0] == "H"),
        "rule_hits": hits,
        "hosts": {f"H{host}": result for host, result in running.results.items()},
        "expected": [
            _found(expected, captured, times, hits, scenario)
            for expected in [*scenario.expected, *waits]
        ],
    }
    if scenario.after is not None:
        truth["damaged_frames"] = scenario.after(folder)
    for link in LINKS:
        plain = folder / f"{link}.pcap"
        plain.with_suffix(".pcap.gz").write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
        plain.unlink()
    (folder / "truth.json").write_text(json.dumps(truth, indent=1))
    return truth


def _overlap(one: Hop, other: Hop | None) -> bool:
    return other is not None and bool(
        set(one.before) & set(other.before) and set(one.after) & set(other.after)
    )


def _disturbed(scenario: Scenario, hosts: list[dict[str, Any]]) -> bool:
    """Whether hosts failed to send, or retransmitted without a fault that is a reason to: MRC hosts
    also what had arrived, because a busy machine held back its SACK."""
    dropping = any(rule.node[0] == "H" for rule in scenario.rules)
    unsent = any(host["counters"]["unsent"] for host in hosts)
    repeated = any(each["retransmitted"] for host in hosts for each in host["requesters"])
    arrived = any(host["counters"].get("received_again") for host in hosts)
    return (unsent and not dropping) or (repeated and scenario.quiet) or arrived


def _found(
    expected: Expected,
    captured: Captured,
    times: dict[int, int],
    rules: list[int],
    scenario: Scenario,
) -> dict[str, Any]:
    """An expected finding with the packets, flows and times that the captures tell."""
    hop = expected.hop
    hits = Hits()
    if hop is not None and expected.count is not None:
        hits = getattr(captured, expected.count)(hop)
        if expected.rule is not None:
            counted = rules[expected.rule]
            assert hits.packets == counted, f"captures tell {hits.packets}, the rule {counted}"
        if expected.required and hits.packets < LEAST_PACKETS:
            raise Useless(f"{hits.packets} packets hit")
    if expected.flows is not None and expected.begins is not None:
        hits.first_ns = captured.asked(expected.flows, times[expected.begins])
    flows = list(hits.flows) if expected.flows is None else expected.flows
    return {
        "kinds": expected.kinds,
        "count": expected.count,
        "required": expected.required,
        "severity": expected.severity,
        "from_taps": hop.before if hop else [],
        "to_taps": ([hop.to_tap] if hop.to_tap else hop.after) if hop else [],
        "device": hop.device if hop else None,
        "host": address(expected.host, scenario.traffic.family) if expected.host else None,
        "capture": expected.capture,
        "set_ns": None if expected.begins is None else times[expected.begins],
        "unset_ns": None if expected.ends is None else times[expected.ends],
        "from_ns": hits.first_ns,
        "until_ns": hits.last_ns,
        "packets": hits.packets if expected.count else None,
        "sure_packets": hits.sure_packets if expected.count else None,
        "of_packets": hits.of_packets if expected.count else None,
        "affected": [[*flow, hits.flows[flow] or None] for flow in flows],
    }
