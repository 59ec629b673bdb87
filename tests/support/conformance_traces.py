"""Traces of a connection made by hand, and what the rules make of them."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import traffic
from traffic import START_NS, packets

from rocescope.analyzer.measures.conformance.options import ConformanceOptions
from rocescope.analyzer.measures.conformance.rules import KINDS, REASONS, RULES
from rocescope.analyzer.measures.conformance.taps import TapConformance
from rocescope.analyzer.track.state import EVIDENCE_CM
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.packets import ACK_REQUEST

ACK, NAK = 0x1F, traffic.NAK_SEQUENCE_ERROR
SLOW_NS = 2_000_000_000
"""Longer than the reaction time of the options' default."""


def write(psn, **more):
    """A WRITE_MIDDLE; `at` is its time in us."""
    return {"psn": psn, "opcode": traffic.WRITE_MIDDLE, **more}


def last(psn, **more):
    """A WRITE_LAST that asks for an ACK."""
    return {"psn": psn, "opcode": traffic.WRITE_LAST, "bth_flags": ACK_REQUEST, **more}


def answer(psn, syndrome=ACK, msn=0, **more):
    """An ACK, NAK or RNR NAK."""
    aeth = {"aeth": (syndrome << 24) | msn, "decode_flags": 0x10}
    return {"psn": psn, "opcode": traffic.ACK, "answer": True, **aeth, **more}


def read(psn, length, **more):
    """A READ request."""
    one = {"opcode": traffic.READ_REQUEST, "payload_bytes": 0, "dma_length": length}
    return {"psn": psn, **one, **more}


def response(psn, opcode=traffic.READ_MIDDLE, **more):
    """A READ response of a whole path MTU."""
    return {"psn": psn, "opcode": opcode, "answer": True, "payload_bytes": 1024, **more}


def fetch_add(psn, **more):
    """A FETCH_AND_ADD request."""
    return {"psn": psn, "opcode": traffic.FETCH_ADD, "payload_bytes": 0, **more}


def atomic_ack(psn, **more):
    """The ACK of an atomic, with its result."""
    return {"psn": psn, "opcode": traffic.ATOMIC_ACK, "answer": True, "payload_bytes": 0, **more}


def judged(rows, options=None, cuts=(), paired=True, ran_us=None):
    """A TapConformance that has seen the rows; rows with `at` (us) come at that time.

    The two flows are known to be a connection, as after CM messages. The capture ran at `ran_us`.
    """
    table = packets([{k: v for k, v in row.items() if k != "at"} for row in rows])
    for i, row in enumerate(rows):
        if "at" in row:
            table.time_ns[i] = START_NS + 1000 * row["at"]
    one, tracker = TapConformance(options or ConformanceOptions()), FlowTracker()
    tracker.index_flows(table)
    if paired and len(tracker) == 2:
        tracker.pair(0, 1, EVIDENCE_CM)
    if ran_us is not None:
        tracker.ran(0, START_NS + 1000 * ran_us)
    edges = [0, *sorted(c for c in set(cuts) if 0 < c < len(table)), len(table)]
    for a, b in itertools.pairwise(edges):
        one.update(tracker.update(table.slice(a, b)), tracker.flows)
    return one


def broken(one):
    """Violations by text of their kind (`{psn}` and all), before any is withdrawn."""
    found = one.keeper.book.broken[: one.keeper.known_flows].sum(axis=0)
    return Counter({k: int(found[k]) for k in range(len(KINDS)) if found[k]})


def kept(one):
    """Cases that keep each rule, by rule id."""
    found = one.keeper.book.ok[: one.keeper.known_flows].sum(axis=0)
    return {RULES[r].id: int(found[r]) for r in np.flatnonzero(found)}


def open_cases(one):
    """Undecided cases by (rule id, reason)."""
    found = one.keeper.book.undecided[: one.keeper.known_flows].sum(axis=0)
    return {(RULES[r].id, REASONS[x]): int(found[r, x]) for r, x in np.argwhere(found)}


def violations(one):
    """The violations that were kept: (kind, frame, related frame, PSN, expected)."""
    book = one.keeper.book
    return [
        tuple(int(v[name]) for name in ("kind", "frame", "related", "psn", "expected"))
        for v in book.violations[: book.used[0]]
    ]
