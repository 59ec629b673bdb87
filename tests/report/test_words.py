"""Numbers as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

import factories_results as factories
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.results.analysis import CaptureLoss, Hop, TapClock
from rocescope.analyzer.results.base import Event
from rocescope.analyzer.results.diagnosis import Diagnosis, Finding, Place, Severity
from rocescope.analyzer.results.flow import Owner
from rocescope.analyzer.track import batch as verdicts
from rocescope.analyzer.words import timestamp
from rocescope.report import hops as words
from rocescope.report import human
from rocescope.report import notes as words_notes
from rocescope.report.human import ASCII, UNICODE
from rocescope.report.notes import Sight, counted_kind, event_text, psn_note, psn_steps

# Numbers as people read them.


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (human.count(0), "0"),
        (human.count(999_999), "999,999"),
        (human.count(1_000_000), "1.00 M"),
        (human.count(20_000_000_000), "20.0 G"),
        (human.count(None), "?"),
        (human.size(0), "0 B"),
        (human.size(999), "999 B"),
        (human.size(1_000), "1.00 kB"),
        (human.size(12_288), "12.3 kB"),
        (human.size(999_600), "1.00 MB"),
        (human.size(None), "?"),
        (human.message_size(65_536), "64 KiB"),
        (human.message_size(3 << 20), "3 MiB"),
        (human.message_size(65_000), "65.0 kB"),
        (human.message_size(64), "64 B"),
        (human.rate(47.94e9), "47.9 Gb/s"),
        (human.rate(None), "?"),
        (human.duration(0), "0 ns"),
        (human.duration(850), "850 ns"),
        (human.duration(999.7), "1.00 us"),
        (human.duration(12_000), "12.0 us"),
        (human.duration(537_000_000), "537 ms"),
        (human.duration(1.2e9), "1.20 s"),
        (human.duration(200e9), "3 min 20 s"),
        (human.duration(8 * 3600e9), "8.0 h"),
        (human.duration(None), "?"),
        (human.percent(0), "0 %"),
        (human.percent(1), "100 %"),
        (human.percent(0.00001), "<0.01 %"),
        (human.percent(0.9999), ">99.9 %"),
        (human.percent(0.0028), "0.28 %"),
        (human.percent(0.125), "12.5 %"),
        (human.percent(None), "?"),
        (human.queue_pair(0x11AC), "0x0011ac"),
        (human.counted(1, "flow"), "1 flow"),
        (human.counted(2_000, "flow"), "2,000 flows"),
        (human.span([8, 8]), "8"),
        (human.span([8, 2, 4]), "2 to 8"),
        (UNICODE.shorten("2001:db8:0:7::1:16", 15), "2001:db…7::1:16"),
        (ASCII.shorten("10.0.1.3", 15), "10.0.1.3"),
    ],
)
def test_texts(shown: str, expected: str) -> None:
    assert shown == expected


@given(st.sets(st.text("ab1-", min_size=1, max_size=20), max_size=30), st.integers(8, 20))
def test_shortened_names_stay_different(names: set[str], width: int) -> None:
    for glyphs in (UNICODE, ASCII):
        cut = glyphs.shortened(names, width)
        assert set(cut) == names and len(set(cut.values())) == len(names)
        assert max(map(len, cut.values()), default=0) <= width


@pytest.mark.parametrize(
    ("names", "width", "cut"),
    [
        (["leaf1-spine1", "leaf1-spine2"], 8, ["leaf…ne1", "leaf…ne2"]),
        (["leaf1-eth1-a", "leaf2-eth1-a", "leaf1-eth2-a"], 8, ["l1-e1-a", "l2-e1-a", "l1-e2-a"]),
        (["1aaaaaaaaa1b", "1aaaaaaaaa2b", "1aaaaaaaa32b"], 8, ["1aaa…a1b", "1aaa…a2b", "1aaa…32b"]),
        (["aaaaaaaabcde", "aaaaaaaaccde"], 8, ["aaa…bcde", "aaa…ccde"]),
        (["aaaaaaaaa1aaaaaaaa", "aaaaaaaaa2aaaaaaaa"], 8, ["aaaaaa…1", "aaaaaa…2"]),
    ],
)
def test_shortened_names(names: list[str], width: int, cut: list[str]) -> None:
    assert list(UNICODE.shortened(names, width).values()) == cut


@given(st.floats(0, 1))
def test_percent_never_hides_a_little_or_pretends_all(share: float) -> None:
    text = human.percent(share)
    assert (text == "0 %") == (share == 0)
    assert (text == "100 %") == (share == 1)


def test_columns_show_everything_above_zero() -> None:
    assert UNICODE.columns([0, 1, 50, 100]) == " ▁▄█"
    assert ASCII.columns([0, 0.01, 1]) == " .#"
    assert UNICODE.columns([0, 0]) == "  "
    assert UNICODE.columns([]) == ""


@given(st.lists(st.integers(0, 10**12), max_size=300), st.integers(1, 80))
def test_sparkline_fits_and_keeps_the_peak(values: list[int], width: int) -> None:
    line = UNICODE.sparkline(values, width)
    assert len(line) == min(len(values), width)
    assert ("█" in line) == (max(values, default=0) > 0)


def test_bars() -> None:
    assert UNICODE.bar(1, 4) == "████"
    assert UNICODE.bar(0.5, 4) == "██"
    assert UNICODE.bar(0.3, 4) == "█▎"
    assert UNICODE.bar(0.0001, 4) == "▏"
    assert UNICODE.bar(0, 4) == ""
    assert ASCII.bar(0.5, 4) == "##"


@pytest.mark.parametrize(
    ("owner", "text"),
    [
        (Owner(71, "python", 3, "source"), "python, pid 71, rank 3 (source)"),
        (Owner(71, "python", None), "python, pid 71 (destination)"),
        (Owner(71, None, 3, host="nodea"), "nodea, pid 71, rank 3 (destination)"),
        (
            Owner(71, "x", 3, host="nodea", peer_rank=11),
            "x, pid 71, rank 11 to rank 3 (destination)",
        ),
        (Owner(None, "perftest", None, device="rxe0"), "perftest (destination)"),
    ],
)
def test_owner(owner: Owner, text: str) -> None:
    assert human.owner(owner) == text


# Names of taps and hops, and their values in words.

SHORT = words.short_taps(["a/leaf1-spine1.pcap.gz", "a/leaf1-spine2.pcap.gz"])


def test_names_lose_what_all_have_in_common_and_cannot_steer_the_terminal() -> None:
    assert list(SHORT.values()) == ["leaf1-spine1", "leaf1-spine2"]
    hostile = words.short_taps(["x\x1b[2J1.pcap", "y.pcap"])
    assert hostile["x\x1b[2J1.pcap"] == "x?[2J1"


def test_counts_name_only_what_happened() -> None:
    assert words.counts(factories.hop()) == "7,904 packets of 4 flows, 71 lost (0.90 %)"
    quiet = factories.hop(lost_packets=0, lost_percent=0.0, ce_marked_packets=3)
    assert words.counts(quiet) == "7,904 packets of 4 flows, 0 lost, 3 marked CE here"


def test_delays_between_two_clocks_may_be_negative() -> None:
    assert words.duration_of(-1_500) == "-1.50 us"
    assert "p99 9.00 us" in words.delay(factories.hop())
    assert words.delay(factories.hop(delay_ns=None)) == ""


def test_hops_with_any_trouble_come_first_and_others_stay_in_order() -> None:
    def hop(number: int, wait_ns: int = 2_000, **more: int) -> Hop:
        waits = factories.quantiles(10, 0, wait_ns // 2, wait_ns)
        return factories.hop(id=number, queueing_ns=waits, **{"lost_packets": 0} | more)

    hops = [
        hop(0), hop(1, 90_000), hop(2, 5_000_000), hop(3, reordered_packets=91), hop(4),
        hop(5, lost_packets=1), hop(6, ce_marked_packets=3),
    ]  # fmt: skip
    assert [hop.id for hop in words.worst_first(hops)] == [5, 6, 3, 2, 0, 1, 4]
    assert words.worst_first([]) == []


def test_next_tap_is_unknown_when_nothing_tells() -> None:
    assert words.expected_tap(factories.hop(to_tap=None), {}) == "?"
    assert words.expected_tap(factories.hop(), {"leaf2-spine2": "two"}) == "two"
    assert words.expected_by(factories.hop()) == "other packets of the same flow went there"
    assert words.expected_by(factories.hop(to_tap=None)).startswith("not known")
    assert "fabric" in words.expected_by(factories.hop(to_tap=None, expected_by="fabric"))


def test_capture_loss_and_clocks() -> None:
    loss = CaptureLoss("t", 5, 100, 0, 1, [0])
    assert words.capture_loss(loss, {}) == "the capture of t missed 5 of 100 (5.0 %)"
    clock = TapClock("t", "u", -1_500.0, 200.0, 1.5, 2)
    assert words.clock(clock, {}) == (
        "clock of t: -1.50 us from u, known to 200 ns, drift 1.50 ppm, 2 jumps"
    )


def test_devices_of_one_tier_differ_in_their_numbers() -> None:
    assert words.tier("spine12") == words.tier("spine3") == "spine"


# Sentences of the diagnosis.

# Sentences of the diagnosis.

FOUND = factories.diagnosis()
CLEAN = Diagnosis("", [], [], [])


def test_heading_counts_by_severity() -> None:
    assert words_notes.heading(FOUND) == "1 warning, 1 note"
    assert words_notes.heading(CLEAN) == "no finding"


def test_sentence_ends_with_the_next_step() -> None:
    text = words_notes.sentence(FOUND.findings[0])
    assert text.startswith("spine2 drops 0.9 %")
    assert text.endswith("lost 310 ms; next: check the link leaf2-spine2, or drain spine2")


DAY = 86_400 * 10**9
START_NS = factories.START_NS  # 2023-11-14 22:13:20 UTC


@pytest.mark.parametrize(
    ("from_ns", "until_ns", "text"),
    [
        (START_NS + 412_999_999, START_NS + 2_630_000_000,
         "2023-11-14 22:13:20.412 to 22:13:22.630 UTC"),
        (START_NS, START_NS + 7_200 * 10**9,
         "2023-11-14 22:13:20.000 to 2023-11-15 00:13:20.000 UTC"),
        (START_NS, START_NS + 3 * DAY, "2023-11-14 22:13:20.000 to 2023-11-17 22:13:20.000 UTC"),
        (START_NS, START_NS + 20_000, "2023-11-14 22:13:20.000000 to 22:13:20.000020 UTC"),
        (START_NS + 1, START_NS + 5, "2023-11-14 22:13:20.000000001 to 22:13:20.000000005 UTC"),
        (START_NS, START_NS, "2023-11-14 22:13:20.000000000 UTC"),
        (START_NS, None, "2023-11-14 22:13:20.000000000 UTC to the end"),
        (0, 10**9, "1970-01-01 00:00:00.000 to 00:00:01.000 UTC"),
        (-1, -1, "1969-12-31 23:59:59.999999999 UTC"),
        (10**30, 10**30, "at times outside the years 1 to 9999"),
        (0, 10**30, "at times outside the years 1 to 9999"),
    ],
)  # fmt: skip
def test_spans_are_in_utc_with_the_digits_that_they_need(
    from_ns: int, until_ns: int | None, text: str
) -> None:
    assert words_notes.utc_span(from_ns, until_ns) == text


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_time_of_64_bits_has_a_time_of_day_that_reads_back(time_ns: int) -> None:
    text = timestamp(time_ns)
    assert text is not None and len(text) == len("2026-11-21T14:03:07.412345678Z")
    seconds = datetime.fromisoformat(f"{text[:19]}+00:00") - datetime(1970, 1, 1, tzinfo=UTC)
    assert (seconds.days * 86_400 + seconds.seconds) * 10**9 + int(text[20:29]) == time_ns


def test_the_time_of_capture_is_that_of_all_captures() -> None:
    analysis = factories.analysis()
    (capture,) = analysis.captures
    later = msgspec.structs.replace(capture, first_time_ns=START_NS + DAY,
                                    last_time_ns=START_NS + 2 * DAY)  # fmt: skip
    empty = msgspec.structs.replace(capture, first_time_ns=None, last_time_ns=None)
    both = msgspec.structs.replace(analysis, captures=[later, empty, capture])
    assert words_notes.captured(both) == (
        "captured 2023-11-14 22:13:20.000 to 2023-11-16 22:13:20.000 UTC"
    )
    assert words_notes.captured(msgspec.structs.replace(analysis, captures=[empty])) == ""


def test_a_finding_has_its_onset_unless_it_may_be_there_from_the_beginning() -> None:
    finding = msgspec.structs.replace(FOUND.findings[0], from_ns=START_NS + 1_500_000_000)
    assert "; onset 22:13:21.500 UTC; next: " in words_notes.sentence(finding, START_NS)
    next_day = msgspec.structs.replace(finding, from_ns=START_NS + DAY)
    assert words_notes.onset(next_day, START_NS) == "onset 2023-11-15 22:13:20.000 UTC"
    unsure = msgspec.structs.replace(finding, onset_uncertainty_ns=1_500_000_000)
    assert words_notes.onset(unsure, START_NS) == ""
    absurd = msgspec.structs.replace(finding, from_ns=10**30)
    assert words_notes.onset(absurd, START_NS) == "" and absurd.from_utc is None


def test_the_times_of_day_of_a_finding_follow_its_ns() -> None:
    finding = msgspec.structs.replace(
        FOUND.findings[0], from_ns=START_NS + 5, until_ns=START_NS + 9
    )
    assert finding.from_utc == "2023-11-14T22:13:20.000000005Z"
    assert finding.until_utc == "2023-11-14T22:13:20.000000009Z"
    read = msgspec.json.decode(msgspec.json.encode(finding), type=Finding)
    assert read == finding
    assert msgspec.structs.replace(finding, until_ns=None).until_utc is None


def test_names_from_files_cannot_steer_the_terminal() -> None:
    hostile = msgspec.structs.replace(FOUND.findings[0], sentence="\x1b[2Jgone", next_step="a\nb")
    assert words_notes.sentence(hostile) == "?[2Jgone; next: a?b"
    assert words_notes.place(Place(device="\x1b[2J")) == "?[2J"
    assert words_notes.healthy(Diagnosis("", [], ["a\x07", "b."], [])) == ["a?", "b"]


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (Place("leaf1-spine2", "leaf2-spine2", "spine2", "up"), "spine2, up"),
        (Place("leaf1-spine2", "leaf2-spine2"), "leaf1-spine2 > leaf2-spine2"),
        (Place("leaf1-spine2"), "after leaf1-spine2"),
        (Place(to_tap="leaf1-spine2"), "before leaf1-spine2"),
        (Place(host="10.0.0.1", dest_qp=17), "10.0.0.1 QP 0x000011"),
        (Place(capture="a.pcap"), "a.pcap"),
        (Place(direction="before the tap"), "before the tap"),
        (Place(to_tap="leaf1-spine2", direction="before the tap"), "before leaf1-spine2"),
        (Place(), ""),
    ],
)  # fmt: skip
def test_place(where: Place, text: str) -> None:
    assert words_notes.place(where) == text


def test_place_has_short_names_of_taps() -> None:
    assert words_notes.place(Place("a.pcap", "b.pcap"), {"a.pcap": "a", "b.pcap": "b"}) == "a > b"


@pytest.mark.parametrize(
    ("worst", "severity", "reached"),
    [
        ("critical", "critical", True),
        ("warning", "critical", False),
        ("warning", "warning", True),
        ("note", "warning", False),
        ("note", "note", True),
    ],
)
def test_reaches(worst: Severity, severity: Severity, reached: bool) -> None:
    finding = msgspec.structs.replace(FOUND.findings[0], severity=worst)
    assert words_notes.reaches(Diagnosis("", [finding], [], []), severity) == reached
    assert not words_notes.reaches(CLEAN, severity)


# Events in the words of the screens.


def event(kind, text):
    return Event(time_ns=0, kind=kind, flow=0, frame_number=1, tap=None, text=text)


@pytest.mark.parametrize(
    ("kind", "text", "long", "short"),
    [
        (
            "nak",
            "10.0.0.2 > 10.0.0.1 QP 0x00002a: NAK, PSN sequence error, PSN 5842039",
            "10.0.0.2 > 10.0.0.1 QP 0x00002a: PSN sequence error, PSN 5842039",
            "0x00002a: PSN sequence error, PSN 5842039",
        ),
        (
            "rewind",
            "10.0.0.1 > 10.0.0.2 QP 0x00002a: retransmits from PSN 16777215 (nak)",
            "10.0.0.1 > 10.0.0.2 QP 0x00002a: retransmits from PSN 16777215 (nak)",
            "0x00002a: from PSN 16777215 (nak)",
        ),
        (
            "sequence_restart",
            "a > b QP 0x000011: PSN jumps to 17: the queue pair restarted",
            "a > b QP 0x000011: PSN jumps to 17: the queue pair restarted",
            "0x000011: PSN jumps to 17: the queue pair restarted",
        ),
        (
            "plane_down",
            "plane 3 is unreachable",
            "plane 3 is unreachable",
            "plane 3 is unreachable",
        ),
    ],
)
def test_psns_as_the_packets_show_them_and_nothing_twice(kind, text, long, short):
    assert event_text(event(kind, text)) == long
    assert event_text(event(kind, text), short=True) == short


def test_what_differs_is_seen_where_there_is_little_room():
    text = (
        "fd00::1 > fd00::2 QP 0x000100: entropy value 61005/0x41c2 of plane fcbb:bb00:0200 retired"
    )
    one = event("ev_retired", f"{text} (inferred: port down)")
    long = "0x000100: EV 61005/0x41c2 of plane fcbb:bb00:0200 (inferred: port down)"
    assert event_text(one, room=100) == f"fd00::1 > fd00::2 QP {long}"
    assert event_text(one, room=80) == event_text(one, short=True) == long
    shortest = "0x000100: 61005/0x41c2 on …0200 (port down)"
    assert event_text(one, room=44) == event_text(one, short=True, room=44) == shortest
    back = event("ev_returned", "a > b QP 0x000100: entropy value 1/0x2 of plane left used again")
    assert event_text(back, short=True, room=20) == "0x000100: 1/0x2 on left"


def test_counts():
    assert counted_kind(1, "nak") == "1 NAK" and counted_kind(1_234, "nak") == "1,234 NAKs"
    assert counted_kind(2, "rewind") == "2 rewinds" and counted_kind(2, "plane_up") == "2 plane up"


# Notes on single packets.

NOTHING = Sight(-1, -1, -1, -1, -1, -1, -1)


def test_steps_count_over_the_end_of_the_psns():
    assert psn_steps(2, 0xFFFFFE) == 4 and psn_steps(0xFFFFFE, 2) == -4


@pytest.mark.parametrize(
    ("kind", "sight", "note"),
    [
        (verdicts.AHEAD, NOTHING._replace(due=7, gap=0), "gap: 3 missing"),
        (verdicts.AHEAD, NOTHING, "gap"),
        (verdicts.REORDERED, NOTHING._replace(due=12), "late by 2"),
        (
            verdicts.REORDERED,
            NOTHING._replace(due=12, extent=4, late_ns=1500),
            "late by 2, extent 4, 1.50 us",
        ),
        (verdicts.REORDERED, NOTHING, "late"),
        (verdicts.TAP_COPY, NOTHING, "copy at leaf1"),
        (verdicts.IN_ORDER, NOTHING._replace(due=10), ""),
        (verdicts.NOT_SEQUENCED, NOTHING, ""),
    ],
)
def test_notes(kind, sight, note):
    assert psn_note(kind, 10, sight, "leaf1") == note


def test_every_other_verdict_has_a_note():
    usual = (verdicts.IN_ORDER, verdicts.NOT_SEQUENCED)
    for kind in range(len(verdicts.VERDICT_NAMES)):
        assert bool(psn_note(kind, 10, NOTHING, "tap")) == (kind not in usual)
