"""Answers as JSON have a schema of their own."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from rocescope.agent.adapters import Adapter, AdapterState
from rocescope.agent.findings import (
    ADAPTER,
    GONE,
    NEW_AGAIN_NS,
    NOT_ATTACHED,
    UNKNOWN,
    WINDOW_NS,
    AgentDiagnosis,
    Bypass,
    Findings,
    Flows,
    Now,
    Place,
    QueuePairs,
    blind,
    blind_because,
    placed,
)
from rocescope.agent.flows import COUNTED
from rocescope.probes.owners.queue_pairs import Resource

# Answers as JSON have a schema of their own.


@pytest.mark.parametrize("record", [AgentDiagnosis, Flows, QueuePairs])
def test_schemas(record):
    schema = msgspec.json.schema(record)
    fields = schema["$defs"][record.__name__]["properties"]
    assert fields["schema_version"]["default"] == "1.0" and "time_ns" in fields


# Blind or not: a zero is never exported where packets cannot be seen.

HARDWARE, SOFTWARE = Adapter("mlx5_0", is_software=False), Adapter("rxe0", is_software=True)


@pytest.mark.parametrize(
    ("attached", "gone", "adapters", "counted", "bypassed", "reason"),
    [
        (True, False, [], 0, False, None),
        (True, False, [SOFTWARE], 0, False, None),
        (True, False, [SOFTWARE], 0, True, None),
        (True, False, [HARDWARE], 0, False, ADAPTER),
        (True, False, [HARDWARE], 10, False, None),
        (True, False, [HARDWARE], 10, True, ADAPTER),
        (True, False, None, 0, False, UNKNOWN),
        (True, False, None, 10, False, None),
        (True, True, [], 10, False, GONE),
        (False, False, [HARDWARE], 0, False, NOT_ATTACHED),
    ],
)
def test_reasons(attached, gone, adapters, counted, bypassed, reason):
    assert blind_because(attached, gone, adapters, counted, bypassed) == reason
    if reason is not None:
        assert blind("eth2", reason).sentence


def test_bypass_is_found_by_what_has_grown():
    bypass = Bypass()
    looks = [
        (0, 5_000, False),  # before the start
        (1_000, 6_000, False),
        (1_000_000, 1_005_000, False),
        (1_000_010, 1_005_021, True),  # a long past with all packets hides nothing
        (1_000_010, 1_005_021, True),  # idle
        (1_000_020, 1_005_041, False),
        (1_000_020, 7, False),  # reset
        (1_000_020, 8, True),
    ]
    for counted, moved, found in looks:
        bypass.look(counted, {"mlx5_0": moved})
        assert bypass.found == found, (counted, moved)


def test_names_and_namespaces():
    assert placed("eth2", None) == ("eth2", None) and placed("eth2", "blue") == ("eth2", "blue")
    assert placed("red:eth2", "blue") == ("eth2", "red")
    assert placed("pid:7:eth2", None) == ("eth2", "pid:7")


# Findings from counts: thresholds, the last minute, what is new, and no false all-clear.

IN, OUT = Place("eth2", "in"), Place("eth2", "out")
S = 1_000_000_000


def counts(**numbers):
    row = np.zeros((1, len(COUNTED)), np.uint64)
    for name, number in numbers.items():
        row[0, COUNTED.index(name)] = number
    return row


def judge(findings, at_s=0, seen=True, whole=True, state=None, flows=None, **numbers):
    """flows: skipped PSNs and late packets of each; one flow has all without them."""
    now = Now(1000 * S + at_s * S, at_s * S)
    if flows is None:
        flows = [(numbers.get("gap_psns", 0), numbers.get("late", 0))]
    gaps, late = (sum(column) for column in zip(*flows, strict=True))
    row = counts(**{**numbers, "gap_psns": gaps, "late": late})
    disordered = np.array([(i, 0, *flow) for i, flow in enumerate(flows)], np.int64)
    return findings.take(now, row, disordered, [seen], [whole], state or AdapterState())


def test_clean_packets_are_healthy_as_far_as_they_go():
    findings = Findings([IN])
    assert judge(findings, packets=510, ordered=500, acks=10, ecn_capable=510) == []
    assert findings.current == []
    assert findings.healthy == [
        "eth2 in: no loss finding in 500 data packets",
        "eth2 in: no naks finding in 10 ACKs",
        "eth2 in: no receiver-not-ready finding in 10 ACKs",
        "eth2 in: no reordering finding in 500 data packets",
        "eth2 in: no ecn-marking finding in 510 ECN-capable packets",
    ]


def test_nothing_is_healthy_that_was_not_checked():
    findings = Findings([IN])
    judge(findings, packets=10, acks=10)
    assert {line.split()[3] for line in findings.healthy} == {"naks", "receiver-not-ready"}
    judge(findings, whole=False, packets=10, acks=10)
    assert findings.healthy == []
    assert judge(Findings([IN]), seen=False, packets=99, ordered=99, gap_psns=50) == []
    for unjudged in ("jumps", "restarts", "unordered"):
        findings = Findings([IN])
        judge(findings, packets=50, ordered=50, **{unjudged: 1})
        assert findings.healthy == []
    findings = Findings([OUT])
    judge(findings, packets=50, ordered=50)
    assert [line.split()[3] for line in findings.healthy] == ["reordering"]


def test_psns_that_nothing_fills_are_lost():
    (loss,) = judge(Findings([IN]), ordered=1000, gap_psns=20, late=10)
    assert (loss.kind, loss.severity, loss.packets, loss.of_packets) == (
        "loss",
        "critical",
        10,
        1000,
    )
    assert loss.share_percent == 1 and "eth2 in: 10 PSNs at least" in loss.sentence
    assert judge(Findings([IN]), ordered=200_000, gap_psns=19) == []
    assert judge(Findings([OUT]), ordered=1000, gap_psns=20) == []


def test_retransmissions_do_not_hide_loss():
    """Go-back-N: one PSN is skipped, then many packets come again."""
    (loss,) = judge(Findings([IN]), ordered=31_510, gap_psns=125, late=11_155)
    assert (loss.kind, loss.packets) == ("loss", 125) and "retransmitted" in loss.sentence
    refused = judge(Findings([IN]), ordered=1000, gap_psns=20, late=20, naks=20, acks=40_000)
    assert [(one.kind, one.packets) for one in refused] == [("loss", 20)]
    assert "reordered and refused" in refused[0].sentence


def test_each_flow_is_judged_by_itself():
    findings = Findings([IN])
    (loss,) = judge(findings, ordered=10_000, flows=[(12, 900), (500, 500), (30, 0)])
    assert loss.packets == 12 + 30
    assert judge(Findings([IN]), 0, ordered=10_000, flows=[(500, 500), (0, 900)]) == []
    findings = Findings([IN])
    assert judge(findings, 0, ordered=1000, flows=[(20, 0)])
    judge(findings, 1, ordered=1000, flows=[(0, 20)])
    assert "loss" not in {one.kind for one in findings.current}, "filled in the next interval"


def test_skipped_psns_are_never_healthy():
    findings = Findings([IN])
    assert judge(findings, ordered=1000, gap_psns=1, late=1) == []
    assert not [line for line in findings.healthy if "loss" in line]
    (line,) = findings.undecided
    assert line.startswith("eth2 in: 1 PSN was skipped") and "loss from reordering" in line
    judge(findings, 61, ordered=1000)
    assert findings.undecided == [] and "no loss finding" in findings.healthy[0]
    judge(findings, 62, ordered=1000, gap_psns=50)
    assert findings.undecided == []


def test_warnings_are_current_but_not_critical():
    findings = Findings([IN])
    assert judge(findings, ordered=1000, late=100, acks=100, rnr_naks=10, ecn_capable=1000) == []
    assert {f.kind for f in findings.current} == {"reordering", "receiver-not-ready"}
    judge(findings, ecn_capable=1000, ecn_marked=200)
    assert "ecn-marking" in {f.kind for f in findings.current}


def test_new_once_until_it_was_away_for_long():
    findings = Findings([IN])
    assert len(judge(findings, 0, acks=100, naks=50)) == 1
    assert judge(findings, 5, acks=100, naks=50) == []
    assert findings.current[0].since_ns == 1000 * S and findings.current[0].packets == 100
    minute = WINDOW_NS // S
    assert judge(findings, 5 + minute, acks=100) == [] and findings.current == []
    assert judge(findings, 9 + minute, acks=100, naks=50) == []
    away = NEW_AGAIN_NS // S
    judge(findings, 10 + 2 * minute)
    (again,) = judge(findings, 9 + minute + away, acks=100, naks=50)
    assert again.since_ns == (1000 + 9 + minute + away) * S


def in_error(*failed, of=2):
    return AdapterState(
        [
            Resource("mlx5_0", 1, n, 5, "RC", "ERR" if n in failed else "RTS", 0, 0, 7, "x")
            for n in range(of)
        ]
    )


def test_queue_pairs_in_error():
    (finding,) = judge(Findings([IN]), state=in_error(1))
    assert finding.kind == "queue-pairs-in-error" and (finding.packets, finding.of_packets) == (
        1,
        2,
    )
    assert "mlx5_0: 1 of 2 queue pairs" in finding.sentence


def test_a_lingering_queue_pair_hides_no_later_failure():
    findings = Findings([IN])
    assert len(judge(findings, 0, state=in_error(1, of=9))) == 1
    assert judge(findings, 15, state=in_error(1, of=9)) == []
    (later,) = judge(findings, 30, state=in_error(1, 4, of=9))
    assert later.packets == 2 and findings.current[0].since_ns == 1030 * S
    assert judge(findings, 45, state=in_error(4, of=9)) == []
    assert len(judge(findings, 60, state=in_error(4, 5, of=9))) == 1


def test_a_finding_that_grows_much_is_told_again():
    findings = Findings([IN])
    times = range(0, 120, 5)
    told = [len(judge(findings, at, acks=1000, naks=20)) for at in times]
    assert told == [1] + [0] * (len(times) - 1)
    told = [len(judge(findings, at, acks=10_000, naks=2000)) for at in range(120, 180, 5)]
    assert sum(told) == 1 and told[0] == 0
