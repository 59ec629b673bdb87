"""New critical findings of a live analysis."""

from __future__ import annotations

from math import inf

import msgspec
from factories_results import diagnosis

from rocescope.analyzer.results.diagnosis import Place
from rocescope.commands.live.criticals import (
    EVERY_S,
    FIXED_S,
    MARGIN,
    MOST_FLOWS,
    PART,
    PER_FLOW_S,
    Criticals,
)

LOSS = diagnosis().findings[0]
DEAD = msgspec.structs.replace(LOSS, severity="critical", sentence="one is dead")
OTHER = msgspec.structs.replace(DEAD, place=Place(host="10.0.0.9"), sentence="two is dead")


class Scripted:
    """Diagnoses and a clock."""

    def __init__(self, *findings, takes_s=0.0):
        self.now, self.takes_s, self.findings = 0.0, takes_s, list(findings)
        self.runs = 0
        self.criticals = Criticals(self.diagnose, lambda: self.now)

    def diagnose(self):
        self.runs += 1
        self.now += self.takes_s
        return msgspec.structs.replace(diagnosis(), findings=self.findings)

    def after(self, seconds, flows=1, room_s=inf):
        self.now += seconds
        return self.criticals.lines(flows, room_s)


def test_each_critical_finding_is_told_once():
    live = Scripted(LOSS)
    assert live.after(EVERY_S) == []
    live.findings.append(DEAD)
    (line,) = live.after(EVERY_S)
    assert line.startswith("critical: one is dead; next: check the link")
    live.findings.append(OTHER)
    assert [line[:21] for line in live.after(EVERY_S)] == ["critical: two is dead"]
    assert live.after(EVERY_S) == []


def test_a_finding_that_goes_and_comes_again_is_not_new():
    live = Scripted(DEAD)
    assert len(live.after(EVERY_S)) == 1
    live.findings.clear()
    assert live.after(EVERY_S) == []
    live.findings.append(DEAD)
    assert live.after(EVERY_S) == []


def test_a_diagnosis_takes_a_small_part_of_the_time():
    live = Scripted(takes_s=2.0)
    assert live.after(EVERY_S / 2) == [] and live.runs == 0
    assert live.after(EVERY_S / 2) == [] and live.runs == 1
    assert live.after(PART * 2.0 - 1) == [] and live.runs == 1
    assert live.after(1) == [] and live.runs == 2


def test_too_many_flows_are_said_once():
    live = Scripted(DEAD)
    (line,) = live.after(EVERY_S, MOST_FLOWS + 1)
    assert "more than 2,000 flows" in line
    assert live.after(EVERY_S, MOST_FLOWS + 1) == [] and live.runs == 0
    assert len(live.after(EVERY_S, MOST_FLOWS)) == 1


def test_packets_that_would_be_lost_meanwhile_put_a_diagnosis_off():
    live = Scripted(DEAD)
    least = MARGIN * (FIXED_S + 100 * PER_FLOW_S)
    (line,) = live.after(EVERY_S, 100, least * 0.99)
    assert "packet rate is too high" in line and live.runs == 0
    assert live.after(EVERY_S, 100, least * 0.99) == []
    assert live.after(EVERY_S, 100, least)[0].startswith("critical: one is dead")


def test_how_long_a_diagnosis_took_tells_how_long_the_next_one_takes():
    live = Scripted(DEAD, takes_s=0.9)
    live.after(EVERY_S, 100, 1.0)
    assert live.runs == 1
    assert "packet rate is too high" in live.after(PART * 0.9, 100, MARGIN * 0.9 * 0.99)[0]
    live.after(EVERY_S, 100, MARGIN * 0.9 * 1.01)
    assert live.runs == 2
