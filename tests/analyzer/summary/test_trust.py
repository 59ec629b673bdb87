"""What is said about captures before anything else."""

from __future__ import annotations

import factories_results as factories
import pytest

from rocescope.analyzer.decode.merge import MergeCounts
from rocescope.analyzer.results.captures import CaptureSummary, Ended
from rocescope.analyzer.results.flow import Flow
from rocescope.analyzer.summary.trust import warnings_of


def warnings(captures: list[CaptureSummary], flows: list[Flow]) -> list[str]:
    return warnings_of(captures, flows, MergeCounts(), True, False)


@pytest.mark.parametrize(("frames", "text"), [(1, "1 record is"), (7, "7 records are")])
def test_records_out_of_time_order(frames: int, text: str) -> None:
    capture = factories.capture(out_of_order_frames=frames)
    assert warnings([capture], [factories.flow(0, 10)]) == []
    late = factories.flow(0, 10, reordered_packets=1)
    (doubt,) = warnings([capture], [late])
    assert doubt.startswith(f"leaf1.pcap.gz: {text} out of time order: some of the reordering")


def test_flows_without_a_sequence_are_not_seen_in_part() -> None:
    """ACKs and datagrams have notes and no counts, which makes nothing doubtful."""
    acks = factories.ack_flow(1, 10, retransmitted_packets=None, missing_packets=None)
    part = factories.flow(2, 10, missing_packets=None, notes=["40 PSNs were never seen here"])
    assert warnings([factories.capture()], [factories.flow(0, 10), acks]) == []
    assert warnings([factories.capture()], [acks, part]) == [
        "1 flow was seen only in part: losses and reordering are unknown there"
    ]


def test_packets_before_the_first_mirror_session() -> None:
    (line,) = warnings_of([factories.capture()], [], MergeCounts(), True, False, 6)
    assert line.startswith("6 packets precede the first mirror session")


def test_what_ended_flows_leave_unknown_counts_in_words() -> None:
    ended = Ended(flows=3, flows_in_trouble=1, untracked_packets=1)
    beyond, trouble = warnings_of([], [], MergeCounts(), True, False, ended=ended)
    assert beyond.endswith("1 packet of other flows counted, not analysed")
    assert trouble.startswith("1 idle flow with losses")
