"""TrackedBatches made by hand and by hypothesis, for the tests of the measures."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from rocescope.analyzer.track.batch import IN_ORDER, TAP_COPY, VERDICT_NAMES, TrackedBatch
from rocescope.analyzer.wire.packets import PacketTable

START_NS = 1_700_000_000_000_000_000
WRITE_MIDDLE, ACK, CNP = 0x07, 0x11, 0x81


def tracked(rows, n_flows=None):
    """A batch of dicts: `flow`, `verdict` and columns of the packet table.

    A row left empty is a WRITE_MIDDLE of 1,094 bytes in order on flow 0, 1 us after its
    predecessor.
    """
    table = PacketTable.zeros(len(rows))
    flow = np.zeros(len(rows), np.int32)
    verdict = np.full(len(rows), IN_ORDER, np.uint8)
    table.time_ns[:] = START_NS + 1000 * np.arange(len(rows))
    table.opcode[:] = WRITE_MIDDLE
    table.wire_bytes[:] = 1094
    table.payload_bytes[:] = 1024
    table.hop_limit[:] = 64
    for i, row in enumerate(rows):
        for name, value in row.items():
            column = {"flow": flow, "verdict": verdict}.get(name)
            (getattr(table, name) if column is None else column)[i] = value
    if n_flows is None:
        n_flows = int(flow.max(initial=-1)) + 1
    return TrackedBatch(table, flow, verdict, np.full(n_flows, -1, np.int32), n_flows)


def part(batch, start, stop):
    """Rows start..stop; flows become known with their first row, as in the tracker."""
    n_flows = int(batch.flow[:stop].max(initial=-1)) + 1
    return TrackedBatch(
        batch.table.slice(start, stop),
        batch.flow[start:stop],
        batch.verdict[start:stop],
        batch.peer[:n_flows],
        n_flows,
    )


def parts(batch, cuts):
    """The batch cut before each row number in `cuts`."""
    edges = [0, *sorted(c for c in cuts if c <= len(batch)), len(batch)]
    return [part(batch, a, b) for a, b in itertools.pairwise(edges)]


def renumbered(batch, start):
    """Rows from `start` as a capture of its own with its own flow numbers, and ours for them."""
    flows = list(dict.fromkeys(int(f) for f in batch.flow[start:]))
    number = {f: i for i, f in enumerate(flows)}
    return (
        TrackedBatch(
            batch.table.slice(start, len(batch)),
            np.array([number[int(f)] for f in batch.flow[start:]], np.int32),
            batch.verdict[start:],
            np.full(len(flows), -1, np.int32),
            len(flows),
        ),
        np.array(flows, np.int32),
    )


def split_by_flow(batch):
    """Rows of the even flows; rows of the odd ones with flow numbers of their own, and ours."""
    odd = batch.flow % 2 == 1
    flows = np.arange(1, max(batch.n_flows, 2), 2, dtype=np.int32)
    others = batch.take(odd) if odd.any() else part(batch, 0, 0)
    peer = np.full(len(flows), -1, np.int32)
    renamed = TrackedBatch(others.table, others.flow // 2, others.verdict, peer, len(flows))
    return batch.take(~odd), renamed, flows


def updated(measure, batches):
    """`measure` after all `batches`."""
    for batch in batches:
        measure.update(batch)
    return measure


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "flow": st.integers(0, 4),
            "verdict": st.sampled_from([IN_ORDER, IN_ORDER, TAP_COPY, *range(len(VERDICT_NAMES))]),
            "opcode": st.sampled_from([WRITE_MIDDLE, WRITE_MIDDLE, ACK, CNP, 0x0D, 0xC6]),
            "udp_sport": st.integers(0, 5),
            "flow_label": st.sampled_from([0, 0, 1]),
            "tap": st.integers(0, 3),
            "hop_limit": st.integers(61, 64),
            "path_evidence": st.integers(0, 2),
            "traffic_class": st.sampled_from([0, 1, 2, 3, 0x82, 0x83, 0xB9]),
            "vlan": st.sampled_from([0, 0, 0x0064, 0x6064, 0xFFFF]),
            "wire_bytes": st.integers(0, 9000),
            "payload_bytes": st.integers(0, 8192),
            "time_ns": st.integers(START_NS, START_NS + 10**9),
        }
    ),
    max_size=60,
)
BATCHES = ROWS.map(tracked)
CUTS = st.lists(st.integers(0, 60), max_size=4)
