"""Packet tables of one or two flows, made by hand for the tests of the tracker."""

from __future__ import annotations

import itertools

import numpy as np

from rocescope.analyzer.wire.packets import HAS_AETH, HAS_RETH, PacketTable

START_NS = 1_700_000_000_000_000_000
SEND_ONLY, WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY = 0x04, 0x06, 0x07, 0x08, 0x0A
READ_REQUEST, READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY = 0x0C, 0x0D, 0x0E, 0x0F, 0x10
ACK, ATOMIC_ACK, FETCH_ADD = 0x11, 0x12, 0x14
NAK_SEQUENCE_ERROR, RNR_NAK = 0x60, 0x2E

_DEFAULTS = {
    "src": 0,
    "dst": 1,
    "dest_qp": 0x11,
    "opcode": WRITE_MIDDLE,
    "payload_bytes": 1024,
    "wire_bytes": 1094,
    "hop_limit": 64,
    "udp_sport": 50000,
}


def packets(rows):
    """A table of dicts of columns; rows come 1 us apart with ascending identifications.

    `syndrome` makes an AETH, `answer=True` swaps source and destination and takes QP 0x12.
    """
    table = PacketTable.zeros(len(rows))
    for i, row in enumerate(rows):
        row = dict(row)
        values = _DEFAULTS | {
            "time_ns": START_NS + 1000 * i,
            "frame_number": i + 1,
            "ip_id": (i + 1) & 0xFFFF,
        }
        if row.pop("answer", False):
            values |= {"src": 1, "dst": 0, "dest_qp": 0x12, "payload_bytes": 0, "wire_bytes": 62}
        if "syndrome" in row:
            values |= {"aeth": row.pop("syndrome") << 24, "decode_flags": HAS_AETH}
        if "dma_length" in row:
            values |= {"decode_flags": HAS_RETH}
        if "psn" in row:
            row["psn"] &= 0xFFFFFF
        for name, value in (values | row).items():
            getattr(table, name)[i] = value
    return table


def batches(table, cuts):
    """The table cut before each row in `cuts`."""
    edges = [0, *sorted(c for c in set(cuts) if 0 < c < len(table)), len(table)]
    return [table.slice(a, b) for a, b in itertools.pairwise(edges)]


def track(tracker, table, cuts=()):
    """All verdicts on the table, given to the tracker in pieces."""
    verdicts = [tracker.update(part).verdict for part in batches(table, cuts)]
    return np.concatenate(verdicts)
