"""Cases for the tests of the diagnosis: hand-made packets, measured and summarised."""

from __future__ import annotations

import numpy as np
from traffic import START_NS, packets

from rocescope.analyzer.diagnosis.case import Case
from rocescope.analyzer.diagnosis.diagnose import diagnose
from rocescope.analyzer.measures.measuring import Measuring
from rocescope.analyzer.results.captures import CaptureSummary, TapSummary
from rocescope.analyzer.summary.summarize import Summary
from rocescope.analyzer.track.answers import rdma_udp_sport
from rocescope.analyzer.wire.packets import LINKTYPE_ETHERNET
from rocescope.analyzer.wire.registry import Registry
from rocescope.analyzer.wire.taps import Tap

ADDRESSES = [f"10.0.0.{i}" for i in range(1, 9)]
PORT = rdma_udp_sport(0x11, 0x12)
"""The port of both directions of the queue pair of `traffic.packets`: the first ACK pairs them."""


def table_of(rows):
    """A table of rows; `at` is a time in us, where given."""
    table = packets(
        [{"udp_sport": PORT} | {k: v for k, v in row.items() if k != "at"} for row in rows]
    )
    for i, row in enumerate(rows):
        if "at" in row:
            table.time_ns[i] = START_NS + 1000 * row["at"]
    return table


def case_of(rows=(), *, table=None, taps=("tap",), captures=None, **changes):
    """The Case of these rows of one capture; `changes` replace what it says of the analysis."""
    table = table_of(list(rows)) if table is None else table
    registry = Registry()
    for address in ADDRESSES:
        registry.endpoints.add(address)
    for tap in taps:
        registry.taps.add(Tap(tap, LINKTYPE_ETHERNET))
    measuring = Measuring(1_000_000, many_taps=len(taps) > 1)
    measuring.update(table)
    summary = Summary(measuring, registry, "entropy")
    flows = summary.flows()
    return Case(
        **{
            "measuring": measuring,
            "registry": registry,
            "captures": [capture(table, taps)] if captures is None else captures,
            "flows": flows,
            "connections": summary.connections,
            "imbalance": summary.imbalance(),
            "tap_hops": None,
            "hops": [],
            "capture_losses": [],
            "clocks": [],
            "mrc": None,
            "complete": True,
            "filtered": False,
        }
        | changes
    )


def capture(table, taps=("tap",), **changes):
    """The summary of a faultless capture of these packets."""
    some = len(table) > 0
    counts = np.bincount(table.tap, minlength=len(taps)) if some else np.zeros(len(taps), int)
    return CaptureSummary(
        **{
            "name": "one.pcap",
            "format": "pcap",
            "compression": None,
            "frames": len(table),
            "roce_packets": len(table),
            "first_time_ns": int(table.time_ns.min()) if some else None,
            "last_time_ns": int(table.time_ns.max()) if some else None,
            "duration_ns": int(np.ptp(table.time_ns)) if some else None,
            "snapped_frames": 0,
            "out_of_order_frames": 0,
            "undecodable_frames": {},
            "later_fragments": 0,
            "icrc": None,
            "contents": {},
            "taps": [
                TapSummary(name, 1, int(n), int(n), 1, 0, None, [])
                for name, n in zip(taps, counts, strict=True)
            ],
            "warnings": [],
        }
        | changes
    )


def found(case):
    """(kind, severity, packets) of every finding, in order."""
    return [(f.kind, f.severity, f.packets) for f in diagnose(case).findings]
