"""A hand-made analysis with fixed clocks, for everything that shows or writes results.

Six flows: a clean one on a single path, its ACKs, one sprayed evenly over eight
source ports and reordered by it, one lossy, a small READ flow, and a CNP-only flow.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rocescope.analyzer.results.analysis import Analysis, Hop, LostAt
from rocescope.analyzer.results.base import (
    Event,
    HistogramBin,
    Imbalance,
    PathShare,
    Quantiles,
    Series,
    Spraying,
)
from rocescope.analyzer.results.captures import CaptureSummary, Pause, TapSummary
from rocescope.analyzer.results.diagnosis import Affected, Diagnosis, Evidence, Finding, Place
from rocescope.analyzer.results.flow import (
    Congestion,
    Connection,
    Flow,
    IdleGaps,
    Latency,
    Messages,
    Recovery,
    Reordering,
)

START_NS = 1_700_000_000_000_000_000
SECOND = 10**9


def quantiles(count: int, low: float, middle: float, high: float) -> Quantiles:
    return Quantiles(count, low, middle, middle, (middle + high) / 2, high, high, high)


def path(name: str, packets: int, share: float, late: int = 0) -> PathShare:
    return PathShare(
        path=name,
        packets=packets,
        wire_bytes=packets * 1_082,
        share=share,
        reordered_packets=late,
        ecn_marked_packets=0,
        first_time_ns=START_NS,
        last_time_ns=START_NS + SECOND,
    )


def spraying(paths: list[PathShare], width: float, jain: float = 1.0) -> Spraying:
    return Spraying(
        path_by="entropy",
        inferred=True,
        paths_seen=len(paths),
        width=width,
        jain=jain,
        switches=1_000 * (len(paths) - 1),
        switches_per_second=1_000.0 * (len(paths) - 1),
        path_lifetime_ns=quantiles(len(paths), SECOND, SECOND, SECOND),
        paths=paths,
    )


def reordering(late: int, unique: int, max_extent: int) -> Reordering:
    some = late > 0
    return Reordering(
        ratio=late / unique,
        max_extent=max_extent,
        extent_packets=quantiles(late, 1, 3, max_extent) if some else None,
        extent_histogram=[HistogramBin(1, 2, late // 2), HistogramBin(2, 4, late - late // 2)]
        if some
        else [],
        late_time_ns=quantiles(late, 900, 4_200, 41_000) if some else None,
        late_time_histogram=[HistogramBin(512, 1024, late)] if some else [],
        held_packets=quantiles(late, 1, 3, 12) if some else None,
        byte_offset=quantiles(late, 1_024, 3_072, 12_288) if some else None,
        gap_packets=quantiles(late, 3, 9, 40) if some else None,
        gap_time_ns=quantiles(late, 900, 9_000, 80_000) if some else None,
        n_reordering=[late, late // 2, late // 8] if some else [],
        max_n_reordering=3 if some else 0,
        runs=late + 1,
        run_packets=unique - late,
        run_packets_squared=(unique - late) * 9,
        displacement_threshold=8,
        density={-1: late, 0: unique - 2 * late, 1: late} if some else {0: unique},
        buffer_density={0: unique - late, 1: late} if some else {0: unique},
    )


NO_RECOVERY = Recovery(
    naks={},
    rnr_naks=0,
    retransmitted_by={},
    rewinds=0,
    rewound_bytes=0,
    gap_to_nak_ns=None,
    nak_to_resend_ns=None,
    timeout_ns=None,
)


def flow(id: int, packets: int, **changes: Any) -> Flow:
    """A clean RC WRITE flow of `packets` packets on one path, with `changes`."""
    one_path = [path("51022", packets, 1.0)]
    clean = Flow(
        id=id,
        src="10.0.1.3",
        dst="10.0.7.3",
        dest_qp=0x11AC + id,
        transport="RC",
        connection=None,
        first_time_ns=START_NS,
        last_time_ns=START_NS + SECOND,
        packets=packets,
        wire_bytes=packets * 1_082,
        payload_bytes=packets * 1_024,
        request_packets=packets,
        response_packets=0,
        ack_packets=0,
        opcodes={"RC_WRITE_MIDDLE": packets - 2, "RC_WRITE_FIRST": 1, "RC_WRITE_LAST": 1},
        path_mtu=1_024,
        messages=packets // 64,
        reordered_packets=0,
        retransmitted_packets=0,
        recovered_packets=0,
        duplicate_packets=0,
        mirror_duplicates=0,
        tap_copies=0,
        missing_packets=0,
        capture_loss_suspected_packets=0,
        sequence_restarts=0,
        naks=0,
        rnr_naks=0,
        cnps=0,
        ecn_marked_packets=0,
        entropy_values=1,
        spraying_width=1.0,
        paths=one_path,
        spraying=[spraying(one_path, 1.0)],
        reordering=reordering(0, packets, 0),
        recovery=NO_RECOVERY,
        message_statistics=Messages(
            count=packets // 64,
            incomplete=0,
            size_bytes=quantiles(packets // 64, 65_536, 65_536, 65_536),
            duration_ns=quantiles(packets // 64, 40_000, 52_000, 90_000),
            completion_ns=quantiles(packets // 64, 45_000, 60_000, 120_000),
            max_outstanding=4,
        ),
        latency=Latency(
            request_to_ack_ns=quantiles(packets // 64, 3_000, 4_500, 21_000),
            read_to_first_response_ns=None,
        ),
        congestion=Congestion(
            ecn_capable_packets=packets,
            ecn_marked_packets=0,
            cnps=0,
            cnp_spacing_ns=None,
            dscp={26: packets},
        ),
        idle_gaps=IdleGaps(over_10us=12, over_50us=3, over_100us=1, over_500us=0, max_ns=130_000),
        goodput_bits_per_second=packets * 8_192.0,
        activity_bytes=[packets * 1_082 // 10] * 10,
        activity_bin_ns=SECOND // 10,
        taps={"leaf1": packets},
    )
    return msgspec.structs.replace(clean, **changes)


def sprayed_flow(id: int, packets: int = 80_000) -> Flow:
    """Even over eight source ports; 8.0 % late, all of them over port 50007."""
    late = packets * 8 // 100
    paths = [path(str(50_000 + i), packets // 8, 0.125, late if i == 7 else 0) for i in range(8)]
    return flow(
        id,
        packets,
        connection=1,
        entropy_values=8,
        spraying_width=8.0,
        paths=paths,
        spraying=[spraying(paths, 8.0)],
        reordered_packets=late,
        reordering=reordering(late, packets, 14),
    )


def lossy_flow(id: int, packets: int = 20_000) -> Flow:
    """100 packets lost before the tap and recovered by NAKs, one timeout, 3 missing at the end."""
    return flow(
        id,
        packets,
        src="10.0.1.5",
        dst="10.0.9.1",
        retransmitted_packets=2_100,
        recovered_packets=100,
        duplicate_packets=4,
        missing_packets=3,
        capture_loss_suspected_packets=2,
        recovery=Recovery(
            naks={"PSN sequence error": 98},
            rnr_naks=2,
            retransmitted_by={"nak": 2_000, "timeout": 100},
            rewinds=99,
            rewound_bytes=2_100 * 1_082,
            gap_to_nak_ns=quantiles(98, 2_000, 3_500, 60_000),
            nak_to_resend_ns=quantiles(98, 8_000, 12_000, 95_000),
            timeout_ns=quantiles(1, 537_000_000, 537_000_000, 537_000_000),
        ),
        ecn_marked_packets=400,
        congestion=Congestion(
            ecn_capable_packets=packets,
            ecn_marked_packets=400,
            cnps=0,
            cnp_spacing_ns=None,
            dscp={26: packets - 10, 0: 10},
        ),
    )


def ack_flow(id: int, packets: int, **changes: Any) -> Flow:
    """The ACKs of another flow: no requests, no order of their own to judge."""
    plain = flow(
        id,
        packets,
        src="10.0.7.3",
        dst="10.0.1.3",
        wire_bytes=packets * 62,
        payload_bytes=0,
        request_packets=0,
        ack_packets=packets,
        opcodes={"RC_ACK": packets},
        path_mtu=None,
        messages=0,
        reordered_packets=None,
        reordering=None,
        message_statistics=Messages(0, 0, None, None, None, None),
        latency=Latency(None, None),
        goodput_bits_per_second=None,
        notes=["only ACKs were seen: no PSN order of its own"],
    )
    return msgspec.structs.replace(plain, **changes)


def tap(name: str, frames: int, dropped: int | None = 0, **changes: Any) -> TapSummary:
    summary = TapSummary(
        name=name,
        link_type=1,
        frames=frames,
        roce_packets=frames - 12,
        wire_bytes=frames * 1_000,
        dropped_frames=dropped,
        speed_bits_per_second=None,
        pauses=[],
    )
    return msgspec.structs.replace(summary, **changes)


def capture(name: str = "leaf1.pcap.gz", **changes: Any) -> CaptureSummary:
    summary = CaptureSummary(
        name=name,
        format="pcap",
        compression="gzip",
        frames=142_820,
        roce_packets=142_808,
        first_time_ns=START_NS,
        last_time_ns=START_NS + SECOND,
        duration_ns=SECOND,
        snapped_frames=0,
        out_of_order_frames=0,
        undecodable_frames={},
        later_fragments=0,
        icrc=None,
        contents={"ARP": 8, "TCP": 4},
        taps=[tap("leaf1", 142_820)],
        warnings=[],
    )
    return msgspec.structs.replace(summary, **changes)


def series(windows: int = 10) -> Series:
    zeros = [0] * windows
    return Series(
        window_ns=100_000_000,
        start_ns=START_NS,
        packets=[15_200] * windows,
        wire_bytes=[16_000_000 + i * 500_000 for i in range(windows)],
        payload_bytes=[15_000_000] * windows,
        reordered_packets=[0, 0, 640, 5_120, 640] + zeros[5:],
        retransmitted_packets=zeros,
        duplicate_packets=zeros,
        ecn_marked_packets=zeros,
        cnps=zeros,
        naks=zeros,
        tap_wire_bytes={},
    )


def imbalance() -> Imbalance:
    shares = [path(f"leaf1-spine{i}", 1_000, share) for i, share in enumerate((0.4, 0.2, 0.2, 0.2))]
    return Imbalance(
        name="leaf1 uplinks",
        path_by="tap",
        inferred=False,
        paths=4,
        flows=48,
        wire_bytes=4_000 * 1_082,
        fim_flows_percent=30.0,
        fim_bytes_percent=30.0,
        fim_flows_chance_percent=23.4,
        fim_flows_best_percent=0.0,
        max_over_mean=1.6,
        coefficient_of_variation=0.346,
        jain=0.893,
        shares=shares,
    )


def diagnosis() -> Diagnosis:
    """A spine that drops packets of flow 2 until the end, and the sprayed flow."""
    loss = Finding(
        kind="loss",
        severity="warning",
        place=Place("leaf1-spine2", "leaf2-spine2", "spine2", "leaf1 to leaf2"),
        from_ns=START_NS + SECOND,
        until_ns=None,
        onset_uncertainty_ns=40_000_000,
        flows=[2],
        affected=[Affected(2, "10.0.2.1", "10.0.6.6", 0xB07, 2, None, 71, 310_000_000)],
        queue_pairs=1,
        packets=71,
        of_packets=7_904,
        share_percent=0.9,
        share_low_percent=0.7,
        share_high_percent=1.1,
        cost_ns=310_000_000,
        confidence="proven",
        sentence="spine2 drops 0.9 % (71 of 7,904) of what leaf1 sends through it to leaf2,"
        " from 1.0 s to the end; 1 of 6 flows lost 310 ms",
        evidence=[Evidence("leaf1-spine2", 97, START_NS + SECOND)],
        next_step="check the link leaf2-spine2, or drain spine2",
    )
    spraying = Finding(
        kind="spraying",
        severity="note",
        place=Place(host="10.0.1.3"),
        from_ns=START_NS,
        until_ns=None,
        flows=[0],
        affected=[],
        queue_pairs=1,
        packets=40_000,
        of_packets=40_000,
        share_percent=100.0,
        cost_ns=0,
        confidence="proven",
        sentence="10.0.1.3 sprays 1 flow over 8 source ports",
        evidence=[],
        next_step="nothing to do: late packets are expected",
    )
    return Diagnosis(
        loss.sentence,
        [loss, spraying],
        ["80,000 packets: no NAK, no retransmission outside spine2"],
        ["one tap: what happens after it is known only from NAKs and retransmissions"],
    )


def hop(**changes: Any) -> Hop:
    """From leaf1 through spine2, which loses packets of flow 2."""
    made = Hop(
        id=0,
        from_tap="leaf1-spine2",
        to_tap="leaf2-spine2",
        device="spine2",
        expected_by="flow",
        flows=4,
        packets=7_904,
        wire_bytes=8_551_000,
        passed_packets=7_833,
        lost_packets=71,
        lost_percent=0.898,
        lost_by_flow=[LostAt(2, 71, 3_100, START_NS + SECOND, START_NS + 3 * SECOND)],
        first_lost_ns=START_NS + SECOND,
        last_lost_ns=START_NS + 3 * SECOND,
        ce_marked_packets=0,
        reordered_packets=0,
        duplicate_packets=0,
        trimmed_packets=0,
        dscp_changed_packets=0,
        hop_limit_drop=1,
        delay_ns=quantiles(7_833, 1_400, 1_700, 9_000),
        queueing_ns=quantiles(7_833, 0, 300, 7_600),
    )
    return msgspec.structs.replace(made, **changes)


def analysis(**changes: Any) -> Analysis:
    """The six flows, one capture, one set of parallel taps, two events."""
    results = Analysis(
        version="0.0.0",
        complete=True,
        captures=[capture()],
        diagnosis=diagnosis(),
        flows=[
            sprayed_flow(0),
            flow(1, 40_000, src="10.0.1.4", dst="10.0.7.4", connection=0),
            lossy_flow(2),
            ack_flow(3, 1_250, dest_qp=0xA31, connection=1, naks=98, rnr_naks=2),
            flow(4, 640, src="2001:db8::1:15", dst="2001:db8:0:7::1:16", transport="XRC"),
            ack_flow(5, 918, transport="CNP", cnps=918, ack_packets=0, opcodes={"CNP": 918}),
        ],
        connections=[
            Connection(
                id=1,
                flows=[0, 3],
                a="10.0.1.3",
                a_qp=0xA31,
                b="10.0.7.3",
                b_qp=0x11AC,
                transport="RC",
                evidence=["cm", "ack_psn"],
                path_mtu=1_024,
                service="rping",
                read_responses_missing=None,
            )
        ],
        imbalance=[imbalance()],
        hops=[hop()],
        capture_losses=[],
        clocks=[],
        events=[
            Event(START_NS + 310_000_000, "nak", 3, 4_711, "leaf1", "NAK PSN sequence error"),
            Event(START_NS + 850_000_000, "timeout", 2, 9_001, "leaf1", "resent after 537 ms"),
        ],
        events_omitted=0,
        series=series(),
        warnings=[],
    )
    return msgspec.structs.replace(results, **changes)


def clean_analysis() -> Analysis:
    """Two flows to which nothing happened."""
    return analysis(
        captures=[capture(frames=41_262, roce_packets=41_250)],
        flows=[flow(0, 40_000, connection=1), ack_flow(1, 1_250, connection=1)],
        imbalance=[],
        hops=[],
        events=[],
        series=msgspec.structs.replace(series(), reordered_packets=[0] * 10),
    )


def doubtful_analysis() -> Analysis:
    """A capture that dropped frames, cut others and has a clock that stepped back."""
    taps = [
        tap(
            "leaf1",
            142_820,
            dropped=1_234,
            pauses=[Pause(3, 77, 70, 65_535 * 7, 9_200_000, 1_000, 9_000_000)],
        ),
        tap("leaf2", 100, dropped=None),
    ]
    broken = capture(
        taps=taps,
        snapped_frames=40,
        out_of_order_frames=7,
        undecodable_frames={"truncated in the UDP header": 5},
        icrc={"ok": 100, "bad": 2, "truncated": 142_706},
        warnings=["leaf1.pcap.gz: cut short at byte 16,777,216: everything before it is reported"],
        damaged_places=1,
    )
    return analysis(
        complete=False, captures=[broken], warnings=["the capture lost 1,234 frames itself"]
    )
