"""The log of messages against a plain twin over dictionaries."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tracked_batches import START_NS, parts, tracked

from rocescope.analyzer.opcodes import opcode_name
from rocescope.analyzer.track.batch import VERDICT_NAMES
from rocescope.replay.message_log import REQUESTS, RESPONSES, MessageLog

NEW = {"in_order", "ahead", "reordered", "recovered", "restarted"}


def twin(rows: list[dict[str, int]]) -> list[tuple[int, ...]]:
    """(flow, kind, packets, bytes, begun, ended) from the names of opcodes."""
    log: list[list[int]] = []
    running: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        name = opcode_name(row["opcode"])
        operation = name.partition("_")[2]
        if VERDICT_NAMES[row["verdict"]] not in NEW:
            continue
        if operation.startswith("READ_RESPONSE"):
            kind = RESPONSES
        elif name.startswith(("RC_", "XRC_")) and operation.startswith(
            ("SEND", "WRITE", "COMPARE", "FETCH", "FLUSH", "ATOMIC_WRITE")
        ):
            kind = REQUESTS
        else:
            continue
        begins = not operation.startswith(
            ("SEND_MIDDLE", "SEND_LAST", "WRITE_MIDDLE", "WRITE_LAST")
        ) and not operation.endswith(("RESPONSE_MIDDLE", "RESPONSE_LAST"))
        key = row["flow"], kind
        if begins or key not in running:
            running[key] = [row["flow"], kind, 0, 0, row["time_ns"], row["time_ns"]]
            log.append(running[key])
        message = running[key]
        message[2] += 1
        message[3] += row["wire_bytes"]
        message[5] = max(message[5], row["time_ns"])
    return [tuple(message) for message in log]


NAMES = [
    op for op in range(256) if opcode_name(op).startswith(("RC_", "UC_", "UD_", "XRC_", "CNP"))
]
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "flow": st.integers(0, 3),
            "opcode": st.sampled_from(NAMES),
            "verdict": st.integers(0, len(VERDICT_NAMES) - 1),
            "wire_bytes": st.integers(60, 4200),
            "time_ns": st.integers(START_NS, START_NS + 50),
        }
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.lists(st.integers(0, 60), max_size=3))
def test_as_the_twin_in_any_batches(rows: list[dict[str, int]], cuts: list[int]) -> None:
    log = MessageLog()
    for batch in parts(tracked(rows, 4), cuts):
        log.update(batch)
    assert [tuple(message) for message in log.messages.tolist()] == twin(rows)


def test_grows_and_stops_at_its_limit() -> None:
    rows = [{"opcode": 0x04, "psn": i} for i in range(3000)]
    log, small = MessageLog(), MessageLog(most=2999)
    for batch in parts(tracked(rows), [1500]):
        log.update(batch)
        small.update(batch)
    assert len(log.messages) == 3000 and not log.full
    assert small.full and (log.messages["packets"] == np.ones(3000)).all()
