"""The score can fail: wrong kinds, places and numbers count as wrong."""

from __future__ import annotations

from typing import Any

import pytest

from .score import Score, compare, totals

SRC, DST = "10.1.1.10", "10.2.3.10"
TRUTH = {
    "kinds": ["blackhole", "selective-loss"],
    "required": True,
    "severity": "warning",
    "from_taps": ["leaf1-spine2"],
    "to_taps": ["leaf2-spine2"],
    "device": "spine2",
    "host": None,
    "capture": None,
    "set_ns": 10**9,
    "unset_ns": None,
    "from_ns": 10**9 + 10**7,
    "until_ns": 2 * 10**9,
    "count": "lost",
    "packets": 30,
    "sure_packets": 30,
    "of_packets": 1000,
    "affected": [[SRC, DST, 17, 20], [SRC, DST, 18, 10]],
}


def finding(**other: Any) -> dict[str, Any]:
    place = {"from_tap": "leaf1-spine2.pcap.gz", "to_tap": "a/leaf2-spine2.pcap", "device": None}
    return {
        "kind": "blackhole",
        "severity": "critical",
        "place": place | {"host": None, "capture": None} | other.pop("place", {}),
        "from_ns": 10**9,
        "packets": 30,
        "sentence": "spine2 drops",
        "affected": [{"src": SRC, "dst": DST, "dest_qp": qp} for qp in (17, 18)],
    } | other


def judged(*findings: dict[str, Any], truth: dict[str, Any] = TRUTH) -> Score:
    return compare(Score("run"), [truth], list(findings))


def test_a_right_finding() -> None:
    score = judged(finding())
    (match,) = score.matches
    assert score.right
    assert (match.packets_right, match.onset_right, match.affected) == (True, True, (2, 2, 2))
    assert "1 of 1 (100 %) of findings" in totals([score])


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "loss"},
        {"place": {"from_tap": "leaf1-spine3.pcap.gz"}},
        {"place": {"to_tap": "leaf1-spine2.pcap.gz"}},
        {"place": {"device": "spine3"}},
        {"place": {"from_tap": None, "to_tap": None, "host": DST}},
    ],
)
def test_a_wrong_kind_or_place_is_missed_and_false(wrong: dict[str, Any]) -> None:
    score = judged(finding(**wrong))
    assert not score.right
    assert len(score.missed) == len(score.wrong) == 1
    assert not score.matches


def test_numbers_are_judged() -> None:
    score = judged(finding(packets=29, from_ns=10**9 + 2 * 10**8, affected=[]))
    (match,) = score.matches
    assert (match.packets_right, match.onset_right) == (False, False)
    assert match.affected == (0, 0, 2)
    said = totals([score])
    assert "packets exact 0 of 1" in said
    assert "onset within its window 0 of 1" in said


def test_a_note_is_no_finding_and_no_false_alarm() -> None:
    score = judged(finding(severity="note"))
    assert (len(score.missed), len(score.wrong)) == (1, 0)
    clean = compare(Score("clean"), [], [finding()])
    said = "false: critical blackhole 30 packets from_tap=leaf1-spine2 to_tap=leaf2-spine2"
    assert clean.wrong == [f"{said}\n      spine2 drops"]


def test_a_possible_finding_is_no_false_alarm_where_a_tap_is_left_out() -> None:
    for confidence, right in (("possible", True), ("likely", False)):
        effect = finding(kind="stalled", confidence=confidence)
        score = compare(Score("run"), [TRUTH], [finding(), effect], blind=True)
        assert (score.right, len(score.unsure)) == (right, right)
        assert not judged(finding(), effect).right


def test_one_fault_is_one_finding_unless_more_are_allowed() -> None:
    effect = finding(kind="selective-loss", severity="warning")
    twice = judged(finding(), effect)
    assert [text.split(":")[0] for text in twice.wrong] == ["twice"]
    assert twice.matches[0].finding["kind"] == "blackhole"
    free = TRUTH | {"kinds": ["selective-loss"], "required": False}
    assert compare(Score("run"), [TRUTH, free], [finding(), effect]).right


def test_places_that_are_no_hops() -> None:
    capture = TRUTH | {"kinds": ["clock"], "capture": "H1-leaf1", "packets": None}
    host = TRUTH | {"kinds": ["stalled"], "host": DST, "device": None, "from_taps": []}
    nowhere = {"from_tap": None, "to_tap": None}
    assert judged(finding(kind="clock", place=nowhere | {"capture": "H1-leaf1.pcap.gz"}),
                  truth=capture).right  # fmt: skip
    assert judged(finding(kind="stalled", place=nowhere | {"host": DST}), truth=host).right
    other = finding(kind="stalled", place=nowhere | {"host": SRC}, affected=[])
    assert not judged(other, truth=host).right


def test_one_end_of_the_place_is_enough_next_to_a_tap_that_is_left_out() -> None:
    truth = TRUTH | {"one_end": True}
    assert judged(finding(place={"to_tap": "H3-leaf2.pcap.gz"}), truth=truth).right
    assert not judged(finding(place={"from_tap": "x", "to_tap": "y"}), truth=truth).right
    assert not judged(finding(place={"device": "leaf2"}), truth=truth).right


@pytest.mark.parametrize(
    ("place", "right"),
    [
        ({"from_tap": "H1-leaf1.pcap.gz", "to_tap": None}, True),
        ({"from_tap": "leaf1-spine2.pcap.gz", "to_tap": None}, True),
        ({"from_tap": None, "to_tap": "H3-leaf2.pcap.gz"}, True),
        ({"from_tap": "leaf2-spine2.pcap.gz", "to_tap": None}, False),
        ({"from_tap": None, "to_tap": "leaf1-spine2.pcap.gz"}, False),
    ],
)
def test_few_taps_say_on_which_side_of_them_a_fault_is(place: dict[str, Any], right: bool) -> None:
    truth = TRUTH | {"few": True, "kinds": ["blackhole", "loss"]}
    assert judged(finding(kind="loss", place=place), truth=truth).right == right
    others = [{"src": "10.1.2.10", "dst": "10.2.4.10", "dest_qp": 9}]
    assert not judged(finding(kind="loss", place=place, affected=others), truth=truth).right
    answers = [{"src": DST, "dst": SRC, "dest_qp": 9}]
    assert judged(finding(kind="loss", place=place, affected=answers), truth=truth).right
