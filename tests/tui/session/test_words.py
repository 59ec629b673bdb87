"""Commands and filters for other programs: read again they are the same options."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections import Counter
from dataclasses import replace

import factories_results as factories
import numpy as np
import pytest
from captures import data
from msgspec import structs
from tui_driver import drive, text_of, typed

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.pipeline.captures import analyze as analyze_shown_events
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.base import Event
from rocescope.analyzer.results.diagnosis import Diagnosis
from rocescope.commands.analyze import analyze
from rocescope.commands.options.reading import Reading
from rocescope.commands.plain_words import arguments_of
from rocescope.tui.session.flow_filter import needs_packets
from rocescope.tui.session.judged import Judged
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import (
    UNKNOWN,
    FlowColumns,
    FlowKey,
    PathColumns,
    Snapshot,
    SourceState,
)
from rocescope.tui.session.words import (
    after_colon,
    analyze_command,
    queue_pairs,
    recovery,
    reordering,
    sentence,
    shown_events,
    summary,
    wireshark_filter,
)

# Commands and filters for other programs: read again they are the same options.

# Commands and filters for other programs: read again they are the same options.

KEY = FlowKey("10.0.0.1", "10.0.0.2", 0x11)


@pytest.mark.parametrize(
    "reading",
    [
        Reading(),
        Reading(concat=True, usid="48:16", flow_label="outer"),
        Reading(udp_port=[4971, 5000], plane_by="segment:2", trimmed_dscp=[4, 5]),
        Reading(clock="hardware", drop_duplicates="20us", filter="cnp or psn in {1..5}"),
        Reading(mirror_format="lumina"),
    ],
)
def test_the_command_gives_the_options_again(reading):
    options = reading.options(["it's.pcap"], {"it's.pcap": "up 1"} if not reading.concat else {})
    words = shlex.split(analyze_command(["it's.pcap"], [], options, None))
    assert words[:3] == ["rocescope", "analyze", "it's.pcap"]
    files, given = arguments_of(analyze, words[2:])
    again = given.get("reading", Reading())
    paths, names = [str(file) for file in files], dict(options.tap_names)
    assert again.tap == (["up 1=it's.pcap"] if names else None)
    assert again.options(paths, names) == options


def test_one_flow_and_interfaces():
    command = analyze_command([], ["eth2"], AnalyzeOptions(filter="cnp"), KEY)
    assert command == (
        "rocescope analyze --live eth2 --filter "
        "'cnp and src == 10.0.0.1 and dst == 10.0.0.2 and qp == 0x000011'"
    )


def test_tshark_takes_the_display_filter(need_tool):
    tshark = need_tool("tshark")
    for key in (KEY, FlowKey("fd00::1", "fd00::2", 0x11)):
        words = [tshark, "-Y", wireshark_filter(key), "-r", "/dev/null"]
        said = subprocess.run(words, capture_output=True, text=True, check=False).stderr
        assert "filter" not in said.lower().replace("isn't a capture file", "")


# The first line of the diagnosis screen.


def said(diagnosis, final=True):
    """The line over a session of one flow and 9 packets."""
    columns = FlowColumns.none()
    one = replace(columns, qp=np.zeros(1, np.uint32))
    judged = Judged.of(factories.analysis(diagnosis=diagnosis), final)
    return summary(Snapshot(SourceState("a", "capture", packets=9), flows=one, judged=judged))


def test_findings_are_counted_and_the_worst_is_told():
    assert said(factories.diagnosis()).startswith("1 warning, 1 note: spine2 drops 0.9 %")
    assert said(factories.diagnosis(), False).startswith("So far: 1 warning, 1 note: ")


def test_no_finding_is_no_all_clear_without_a_check():
    assert said(Diagnosis("", [], [], [])) == (
        "No finding in 9 packets, but no check covers this traffic."
    )
    assert said(Diagnosis("", [], [], []), final=False) == (
        "So far: no finding in 9 packets, but no check is complete."
    )
    assert said(Diagnosis("", [], ["12 hops: no loss"], [])) == (
        "No finding in 9 packets; what was checked is below."
    )


def test_a_session_without_diagnosis_says_why():
    assert summary(Snapshot(SourceState("a", "capture"))) == "Waiting for the first RoCE packet."
    seen = replace(FlowColumns.none(), qp=np.zeros(1, np.uint32))
    line = summary(Snapshot(SourceState("a", "capture"), flows=seen))
    assert line == "The diagnosis is not ready yet."


# Which events are shown under a time window and a filter, and what is said of them.

CAPTURE = data("i03_write_reorder5_AtoB")


def shown(*keys):
    """The sentence, the tabs, and the times of the events of all lines."""
    lines = drive([CAPTURE], ("8", *keys), (130, 140), text_of)
    times = [
        float(t) for line in lines if (t := line[1:12].strip()) and re.fullmatch(r"\d+\.\d{6}", t)
    ]
    return lines[2], lines[1], times


@pytest.mark.thorough
def test_events_are_those_of_the_window_and_of_the_flows_that_pass():
    found = analyze_shown_events([str(CAPTURE)], AnalyzeOptions())
    start = min(flow.first_time_ns for flow in found.flows)
    end = max(flow.last_time_ns for flow in found.flows)
    every = [((e.time_ns - start) / 1e9, e.kind, "QP 0x00002c" in e.text) for e in found.events]
    half = (end - start) / 2e9
    low, high = half / 2, half * 3 / 2
    said, tabs, times = shown("left_curly_bracket", "right_square_bracket")
    assert times and low <= min(times) and max(times) <= high
    assert said.strip().startswith(f"{len(times)} events: ") and f"Events {len(times)} " in tabs

    said, tabs, times = shown("slash", typed("qp == 0x2c"), "enter")
    wanted = [(time, kind) for time, kind, mine in every if mine]
    kinds = Counter(kind for _, kind in wanted)
    assert times == [round(time, 6) for time, _ in wanted] and f"Events {len(times)} " in tabs
    assert said.strip() == (
        f"{len(wanted)} of {len(every)} events pass the filter:"
        f" {kinds['nak']} NAKs, {kinds['rewind']} rewinds."
    )

    said, tabs, times = shown("slash", typed("qp == 0x99"), "enter")
    assert (
        not times
        and f"None of {len(every)} events belongs to a flow that passes the filter." in said
    )


def test_events_are_counted_by_connection():
    """The NAKs of a flow are events of the flow that answers; the rewinds are its own."""
    session = Session.open([str(CAPTURE)])
    session.start()
    assert session.wait(300)
    snapshot = session.snapshot()
    session.close()
    every = shown_events(snapshot, np.ones(len(snapshot.flows), np.bool_))
    assert every is snapshot.events
    by_qp = Counter(re.search(r"QP (0x\w+):", e.text)[1] for e in every)  # both ways the same
    (qp, most), *_ = by_qp.most_common()
    assert sentence(snapshot, every, False).endswith(
        f"; the connection of {qp} has the most: {most}."
    )


def test_events_of_no_flow_stay_and_that_is_said():
    session = Session.open([str(CAPTURE)])
    session.start()
    assert session.wait(300)
    snapshot = session.snapshot()
    session.close()
    apart = Event(
        time_ns=0, kind="plane_down", flow=None, frame_number=None, tap=None, text="plane 1 is down"
    )
    more = type(snapshot)(snapshot.source, flows=snapshot.flows, events=(apart, *snapshot.events))
    none = shown_events(more, np.zeros(len(more.flows), np.bool_))
    assert none == (apart,)
    assert sentence(more, none, True) == (
        f"1 of {len(more.events)} events passes the filter: 1 plane down;"
        " 1 of these belongs to no flow."
    )


# The sentence over the queue pairs is never a false all-clear.


def said_sentences(taps=("a",), judged=None, **columns):
    """The sentence over two flows of which nothing is known but `columns`."""
    empty = FlowColumns.none()
    names = ("qp", "packets", "data_packets", "wire_bytes", *FlowColumns.__slots__)
    two = {name: np.zeros(2, getattr(empty, name).dtype) for name in names}
    two |= {"data_packets": np.ones(2, np.int64), "wire_bytes": np.ones(2, np.int64)}
    two |= {name: np.array(values) for name, values in columns.items()}
    seen = Snapshot(
        SourceState("a", "capture", packets=9, tap_names=taps),
        flows=FlowColumns(**two),
        judged=judged or Judged(),
    )
    ones = np.ones(2, np.int64)
    paths = PathColumns("entropy", np.arange(3), ones, ones, ones, ones * 0, ones * 0, np.ones(2))
    return queue_pairs(replace(seen, paths={"entropy": paths}), paths)


def test_it_claims_only_what_happened_before_the_tap():
    assert said_sentences().endswith("; no packet late or lost before this tap.")
    assert said_sentences(taps=("a", "b")).endswith(
        "; no packet late or lost before the first tap."
    )


def test_unknown_flows_are_not_cleared():
    assert said_sentences(late=[0, UNKNOWN]).endswith(
        "; no packet late or lost before this tap in 1 of 2 flows, the others unknown."
    )
    assert said_sentences(missing=[UNKNOWN, UNKNOWN]).endswith("; loss and order unknown.")


@pytest.mark.parametrize(
    ("column", "word"),
    [("late", "late"), ("missing", "missing"), ("naks", "NAKs"), ("rnr_naks", "RNR NAKs")],
)
def test_any_trouble_withdraws_it(column, word):
    text = said_sentences(**{column: [0, 3]})
    assert text.endswith(f"; 3 {word}.") and "no packet" not in text


def test_losses_between_taps_are_told():
    hops = Judged.of(factories.analysis(hops=[factories.hop()]), True)
    assert "71 lost between taps (3)" in said_sentences(judged=hops)


def test_a_flow_in_order_at_its_first_tap_may_be_late_at_others():
    flow = factories.flow(0, 100, reordered_packets=0)
    assert reordering(flow) == "Every packet of this flow arrived in order at this tap."
    several = structs.replace(flow, taps={"a": 100, "b": 100})
    first = "Every packet of this flow arrived in order at the tap that saw it first"
    assert reordering(several) == f"{first}."
    assert reordering(several, 9) == f"{first}; 9 late between taps (3)."
    nothing = "No packet was lost before the first tap or retransmitted"
    assert recovery(several) == f"{nothing}."
    assert recovery(several, between=3) == f"{nothing}; 3 lost between taps (3)."


def test_a_sentence_after_a_colon_has_no_capital_except_of_an_acronym() -> None:
    assert after_colon("Every packet arrived.") == "every packet arrived."
    assert after_colon("UD has no order.") == "UD has no order."
    assert after_colon("4.0 % of the packets arrive late.") == "4.0 % of the packets arrive late."


# Mistakes in filters of flows.


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("resnt > 0", "unknown field 'resnt'; did you mean resent?"),
        ("mising > 0", "unknown field 'mising'; did you mean missing?"),
        ("opcod == RC_ACK", "unknown field 'opcod'; did you mean opcode?"),
    ],
)
def test_a_misspelled_name_suggests_one_of_flows_or_packets(text, says):
    with pytest.raises(UsageError, match=says):
        needs_packets(text)


def test_what_resembles_nothing_is_left_to_the_packet_filter():
    assert needs_packets("qqqqqq > 0")
    assert not needs_packets("resent > 0")
