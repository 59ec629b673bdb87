"""CE marks, rewritten DSCPs, copies, damage and fragments."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from captures import data
from cases import capture, case_of, table_of
from conformance_traces import answer, last, write
from fabric_captures import (
    CE,
    ECT,
    MS,
    between,
    diagnosis,
    duplicate,
    names,
    place_of,
    rewrite,
    severe,
    simulate,
    some,
    warnings,
)
from fabric_captures import write as write_taps

from rocescope.analyzer.diagnosis.finders.marks import (
    copies_before,
    corrupt_packets,
    fragments,
    marks_before,
    marks_without_notification,
    mtu_mismatches,
    notifications_without_marks,
)
from rocescope.analyzer.diagnosis.known import Known
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.wire.packets import FIRST_FRAGMENT, ICRC_BAD, ICRC_OK

HOP = "leaf2-spine3", "leaf1-spine3"
PLACE = (*HOP, "spine3", "leaf2 to leaf1")
FROM, UNTIL = 100 * MS, 300 * MS


@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize(
    ("kind", "make", "share"),
    [
        ("ecn-marking", rewrite(26 << 2 | CE), 0.1),
        ("duplication", duplicate, 0.1),
        ("dscp-mismatch", rewrite(8 << 2 | ECT), 1),
        ("dscp-mismatch", rewrite(8 << 2 | ECT), 0.2),
    ],
)
def test_what_a_spine_does_to_packets(tmp_path, kind, make, share, ipv6):
    run = simulate(fault=between(*HOP, make, FROM, UNTIL, some(share)))
    (one,) = severe(tmp_path, run, ipv6)
    names(one, kind, PLACE, run.hits, ipv6)
    assert one.until_ns == run.hits[-1].time_ns
    assert one.of_packets == sum(s.packet.src > 2 for s in run.taps[HOP[0]])


def test_a_leaf_that_marks_towards_one_host(tmp_path):
    """One finding for all links that lead there."""
    make = rewrite(26 << 2 | CE)
    run = simulate(fault=between("leaf1-spine*", "H2-leaf1", make, FROM, which=some(0.05)))
    (one,) = severe(tmp_path, run)
    names(one, "ecn-marking", (None, "H2-leaf1", "leaf1", None), run.hits)


def test_marks_that_packets_bring_along_are_not_made_here(tmp_path):
    run = simulate(fault=between("H4-leaf2", "leaf2-*", rewrite(26 << 2 | CE), FROM))
    (one,) = severe(tmp_path, run)
    names(one, "ecn-marking", ("H4-leaf2", None, "leaf2", None), run.hits)


def taps_in_series(folder: Path, damaged_from: int, every: int) -> tuple[list[str], int]:
    """A real capture as three taps, 10 us and one hop limit apart; ICRCs do not cover hop limits.

    From tap `damaged_from` on one bit of each `every`th RoCE packet is wrong. Their number, too.
    """
    whole = Path(data("c05_rc_atomic_fetchadd.atB")).read_bytes()
    parts = [bytearray(whole[:24]) for _ in range(3)]
    at, roce = 24, 0
    while at < len(whole):
        seconds, fraction, kept, length = struct.unpack_from("<IIII", whole, at)
        frame = whole[at + 16 : at + 16 + kept]
        at += 16 + kept
        if frame[12:14] != b"\x08\x00" or frame[36:38] != b"\x12\xb7":
            continue
        roce += 1
        for tap, part in enumerate(parts):
            copy = bytearray(frame)
            copy[22] -= tap
            copy[60] ^= (roce % every == 0 and tap >= damaged_from) << 7  # behind BTH and AETH
            time = seconds * 10**9 + fraction + tap * 10_000
            part += struct.pack("<IIII", *divmod(time, 10**9), kept, length) + copy
    paths = [folder / f"{name}.pcap" for name in ("H1-leaf1", "leaf1-leaf2", "leaf2-H2")]
    for path, part in zip(paths, parts, strict=True):
        path.write_bytes(part)
    return [str(path) for path in paths], roce // every


@pytest.mark.parametrize(
    ("damaged_from", "place"),
    [
        (0, (None, "H1-leaf1", None)),
        (1, ("H1-leaf1", "leaf1-leaf2", "leaf1")),
        (2, ("leaf1-leaf2", "leaf2-H2", "leaf2")),
    ],
)
def test_damage_is_where_the_icrc_becomes_wrong(damaged_from, place, tmp_path):
    """Each damaged packet counts once, at the first tap with a wrong ICRC."""
    paths, damaged = taps_in_series(tmp_path, damaged_from, every=37)
    found = warnings(analyze(paths, AnalyzeOptions(icrc=True)).diagnosis)
    assert {finding.kind for finding in found} == {"corruption"}
    assert sum(finding.packets for finding in found) == damaged
    assert {place_of(finding)[:3] for finding in found} == {place}


def test_no_damage(tmp_path):
    paths, _ = taps_in_series(tmp_path, 3, every=37)
    assert warnings(analyze(paths, AnalyzeOptions(icrc=True)).diagnosis) == []


def damage_by_tap(folder: Path, wrong: list[set[int]], snap: int | None = None) -> list[str]:
    """Captures of taps in series; at tap n the packets `wrong[n]` of the first flow are wrong.

    snap: the bytes that the last tap keeps of a frame.
    """
    paths, _ = taps_in_series(folder, 3, every=1)
    for path, packets, is_last in zip(paths, wrong, (False, False, True), strict=True):
        whole = Path(path).read_bytes()
        part, at, number = bytearray(whole[:24]), 24, 0
        while at < len(whole):
            seconds, fraction, kept, length = struct.unpack_from("<IIII", whole, at)
            frame = bytearray(whole[at + 16 : at + 16 + kept])
            at += 16 + kept
            if frame[26:30] != whole[24 + 16 + 26 : 24 + 16 + 30]:
                continue  # answers
            frame[60] ^= (number in packets) << 7
            number += 1
            frame = frame[: snap if is_last else None]
            part += struct.pack("<IIII", seconds, fraction, len(frame), length) + frame
        Path(path).write_bytes(part)
    return paths


def corruption(paths: list[str]):
    diagnosis = analyze(paths, AnalyzeOptions(icrc=True)).diagnosis
    return [finding for finding in diagnosis.findings if finding.kind == "corruption"]


def packets_at(findings):
    return {tuple(place_of(finding)[:2]): finding.packets for finding in findings}


EARLY, LATER = {3, 8, 13, 18, 23}, {5}


@pytest.mark.parametrize(
    ("wrong", "hop"),
    [
        ([EARLY, EARLY | LATER, EARLY | LATER], ("H1-leaf1", "leaf1-leaf2")),
        ([EARLY, EARLY, EARLY | LATER], ("leaf1-leaf2", "leaf2-H2")),
    ],
)
def test_damage_on_a_hop_does_not_hide_damage_before_the_first_tap(wrong, hop, tmp_path):
    found = corruption(damage_by_tap(tmp_path, wrong))
    assert packets_at(found) == {hop: len(LATER), (None, "H1-leaf1"): len(EARLY)}
    assert len({f.of_packets for f in found}) == 1  # packets, not sightings


def test_a_tap_that_keeps_headers_only_checks_nothing(tmp_path):
    found = corruption(damage_by_tap(tmp_path, [EARLY] * 3, snap=64))
    assert packets_at(found) == {(None, "H1-leaf1"): len(EARLY)}


def test_taps_that_see_mostly_wrong_icrcs_are_at_fault(tmp_path):
    (one,) = corruption(damage_by_tap(tmp_path, [set(range(10_000))] * 3))
    assert (one.severity, one.share_percent, one.place.capture) == ("note", 100, "H1-leaf1.pcap")


@pytest.mark.parametrize("ipv6", [False, True])
def test_a_spine_that_trims_has_a_full_queue(tmp_path, ipv6):
    """To the headers, with the class of trimmed packets: that DSCP is no mistake."""

    def trim(packet, now):
        return [(packet._replace(payload_bytes=0, tos=44 << 2), 0)]

    tenth = some(0.1)
    run = simulate(
        fault=between(*HOP, trim, FROM, UNTIL, lambda p: p.payload_bytes > 0 and tenth(p))
    )
    (one,) = severe(tmp_path, run, ipv6)
    names(one, "queueing", PLACE, run.hits, ipv6)
    assert "spine3 trims" in one.sentence


def shortened_after_the_leaf(folder: Path, trimmed: set[int], fragments: set[int]) -> list[str]:
    """Captures of taps in series; from the second on these packets are shorter: those of
    `fragments` say that other fragments follow."""
    paths, _ = taps_in_series(folder, 3, every=1)
    for path in paths[1:]:
        part, at = bytearray(Path(path).read_bytes()), 24
        for number in range(max(trimmed | fragments) + 1):
            kept, length = struct.unpack_from("<II", part, at + 8)
            if number in trimmed | fragments:
                struct.pack_into("<I", part, at + 12, max(kept, length - 8))
                part[at + 16 + 20] |= (number in fragments) << 5
            at += 16 + kept
        Path(path).write_bytes(part)
    return paths


@pytest.mark.parametrize("fragments", [{4}, {4, 10, 11}])
def test_trimmed_packets_are_no_fragments(fragments, tmp_path):
    found = analyze(shortened_after_the_leaf(tmp_path, {7, 8, 9}, fragments), AnalyzeOptions())
    (one,) = [one for one in found.diagnosis.findings if one.kind == "mtu-mismatch"]
    assert (one.packets, place_of(one)[:2]) == (len(fragments), ("H1-leaf1", "leaf1-leaf2"))


def found(bad, of=40):
    rows = [write(n, icrc_state=ICRC_BAD if n < bad else ICRC_OK) for n in range(of)]
    counts = {"ok": of - bad, "bad": bad, "truncated": 0}
    one = capture(table_of(rows), icrc=counts)
    return list(corrupt_packets(case_of(rows, captures=[one]), Known()))


def test_a_few_wrong_ones():
    (one,) = found(2)
    assert (one.kind, one.severity, one.packets, one.of_packets) == ("corruption", "warning", 2, 40)
    assert one.place.to_tap == "tap"
    assert [e.frame_number for e in one.evidence] == [1, 2]


def test_mostly_wrong_is_the_capture():
    (one,) = found(30)
    assert (one.severity, one.place.capture) == ("note", "tap")


def test_all_right():
    assert found(0) == []


def back(psn, size):
    """A WRITE of the other queue pair."""
    return {
        "psn": psn, "src": 1, "dst": 0, "dest_qp": 0x12, "opcode": 0x07, "payload_bytes": size,
    }  # fmt: skip


def test_two_path_mtus_in_one_connection():
    rows = [write(0), last(1), answer(1), back(500, 4096), back(501, 4096)]
    (one,) = mtu_mismatches(case_of(rows), Known())
    assert (one.kind, one.severity, one.flows) == ("mtu-mismatch", "warning", [0, 1])
    assert "path MTUs 1024 and 4096" in one.sentence
    rows = [write(0), last(1), answer(1), back(500, 1024)]
    assert list(mtu_mismatches(case_of(rows), Known())) == []


def test_packets_that_come_in_fragments():
    rows = [write(0), write(1, decode_flags=FIRST_FRAGMENT), last(2), answer(2)]
    (one,) = fragments(case_of(rows), Known())
    assert (one.kind, one.packets, one.flows) == ("mtu-mismatch", 1, [0])
    assert one.place.to_tap == "tap"
    assert one.evidence[0].frame_number == 2
    assert (
        "1 of 3 packets from 10.0.0.1 to 10.0.0.2 are IP fragments before the tap" in one.sentence
    )


def test_fragments_of_other_traffic_tell_nothing():
    rows = [write(0), last(1), answer(1)]
    cut = capture(table_of(rows), later_fragments=3)
    assert list(fragments(case_of(rows, captures=[cut]), Known())) == []


ROWS = [write(n, at=10 * n, ip_id=n) for n in range(50)]


def found_copies(copies):
    rows = [*ROWS, *(ROWS[n] | {"at": 10 * n + 3} for n in copies)]
    return list(copies_before(case_of(sorted(rows, key=lambda row: row["at"])), Known()))


def test_a_few_copies():
    (one,) = found_copies([30, 40])
    assert (one.kind, one.severity, one.packets, one.of_packets) == (
        "duplication", "warning", 2, 52,
    )  # fmt: skip
    assert one.cost_ns == 0
    assert one.place.direction == "before the tap"


def test_everything_twice_is_the_capture():
    (one,) = found_copies(range(50))
    assert one.severity == "note"
    assert one.place.capture == "tap"
    assert "twice" in one.sentence


def test_a_retransmission_is_no_copy():
    rows = [*ROWS, ROWS[40] | {"at": 10**4, "ip_id": 70}]
    assert list(copies_before(case_of(rows), Known())) == []


CE_ENDS, ECT_ENDS, CNP = 3, 2, 0x81


def data_ends(marked=(), **more):
    return [
        write(n, at=n, ip_id=n, traffic_class=CE_ENDS if n in marked else ECT_ENDS, **more)
        for n in range(40)
    ]


def cnp(at, **more):
    return {"opcode": CNP, "answer": True, "at": at, **more}


ANSWERED = [last(40, at=50), answer(40, at=60)]


def test_marked_packets():
    (one,) = marks_before(case_of([*data_ends({3, 9}), *ANSWERED]), Known())
    assert (one.kind, one.severity, one.packets, one.of_packets) == (
        "ecn-marking", "warning", 2, 40,
    )  # fmt: skip
    assert one.place.host == "10.0.0.2"
    assert [e.frame_number for e in one.evidence] == [4, 10]


def test_no_marks_no_finding():
    case = case_of([*data_ends(), *ANSWERED])
    for finder in (marks_before, marks_without_notification, notifications_without_marks):
        assert list(finder(case, Known())) == []


def test_cnps_of_a_host_whose_packets_are_never_marked():
    rows = [*data_ends(hop_limit=62), *ANSWERED, cnp(70), cnp(80)]
    (one,) = notifications_without_marks(case_of(rows), Known())
    assert (one.kind, one.packets, one.place.host) == ("cnp-without-mark", 2, "10.0.0.2")
    assert one.flows == [0]


def test_cnps_that_come_from_behind_a_router_show_marks_after_the_tap():
    routed = [row | {"hop_limit": 61} for row in (ANSWERED[1], cnp(70))]
    rows = [*data_ends(), ANSWERED[0], *routed]
    (one,) = notifications_without_marks(case_of(rows), Known())
    assert (one.kind, one.place.direction) == ("ecn-marking", "after the tap")


def test_cnps_after_marks_are_congestion_control_at_work():
    rows = [*data_ends({3}), *ANSWERED, cnp(70)]
    assert list(notifications_without_marks(case_of(rows), Known())) == []


def other_host(**more):
    """The same between two other hosts."""
    return {"src": 2, "dst": 3, "dest_qp": 0x99, **more}


def test_marks_without_cnps_where_others_send_some():
    marked = set(range(12))
    rows = [*data_ends(marked), *ANSWERED]
    assert list(marks_without_notification(case_of(rows), Known())) == []  # nobody sends CNPs
    others = [write(n, at=100 + n, traffic_class=CE_ENDS, **other_host()) for n in range(12)]
    notified = {"opcode": CNP, "src": 3, "dst": 2, "dest_qp": 0x98, "at": 200}
    (one,) = marks_without_notification(case_of([*rows, *others, notified]), Known())
    assert (one.kind, one.place.host, one.packets) == ("mark-without-cnp", "10.0.0.2", 12)
    few = [*data_ends(set(range(5))), *ANSWERED, *others, notified]
    assert list(marks_without_notification(case_of(few), Known())) == []


def test_copies_at_several_links_of_a_device_name_it(tmp_path):
    """Taps at the uplinks of leaf1: nothing shows the hop before."""
    run = simulate(fault=between("H*-leaf1", "leaf1-spine*", duplicate, which=some(0.05)))
    taps = {tap: seen for tap, seen in run.taps.items() if tap.startswith("leaf1-spine")}
    found = [f for f in diagnosis(write_taps(tmp_path, taps)).findings if f.kind == "duplication"]
    assert [f.place.device for f in found] == ["leaf1"]
    assert sum(f.packets for f in found) == len(run.hits)
