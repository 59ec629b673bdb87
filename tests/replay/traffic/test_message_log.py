"""The log of messages against a plain twin over dictionaries."""

from __future__ import annotations

import numpy as np
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from tracked_batches import START_NS, parts, tracked

from rocescope.analyzer.track.batch import VERDICT_NAMES
from rocescope.analyzer.wire.bth import opcode_name
from rocescope.replay.traffic.message_log import ASKS, REQUESTS, RESPONSES, MessageLog

NEW = {"in_order", "ahead", "reordered", "recovered", "restarted"}


def twin(rows: list[dict[str, int]]) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """(flow, kind, packets, payload, bytes, begun, ended, last PSN) and (message, unit, time,
    bytes) by the names of opcodes; the source port is the unit."""
    log: list[list[int]] = []
    packets: list[tuple[int, ...]] = []
    running: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        name = opcode_name(row["opcode"])
        operation = name.partition("_")[2]
        verdict = VERDICT_NAMES[row["verdict"]]
        if verdict not in NEW and not (name.startswith("UD_") and verdict == "not_sequenced"):
            continue
        if operation.startswith("READ_RESPONSE"):
            kind = RESPONSES
        elif operation.startswith("READ_REQUEST"):
            kind = ASKS
        elif name.startswith(("RC_", "XRC_", "UC_", "UD_")) and operation.startswith(
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
            times = [row["time_ns"], row["time_ns"]]
            running[key] = [row["flow"], kind, 0, 0, 0, *times, row["psn"], len(log)]
            log.append(running[key])
        message = running[key]
        message[2] += 1
        message[3] += row["payload_bytes"]
        message[4] += row["wire_bytes"]
        message[6] = max(message[6], row["time_ns"])
        if not operation.endswith(("FIRST", "MIDDLE")):
            message[7] = row["psn"]
        packets.append((message[8], row["udp_sport"], row["time_ns"], row["wire_bytes"]))
    return [tuple(message[:8]) for message in log], packets


NAMES = [
    op for op in range(256) if opcode_name(op).startswith(("RC_", "UC_", "UD_", "XRC_", "CNP"))
]
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "flow": st.integers(0, 3),
            "opcode": st.sampled_from(NAMES),
            "verdict": st.integers(0, len(VERDICT_NAMES) - 1),
            "payload_bytes": st.integers(0, 4096),
            "wire_bytes": st.integers(60, 4200),
            "udp_sport": st.integers(0, 3),
            "psn": st.integers(0, 9),
            "time_ns": st.integers(START_NS, START_NS + 50),
        }
    ),
    max_size=60,
)


@examples(60)
@given(ROWS, st.lists(st.integers(0, 60), max_size=3))
def test_as_the_twin_in_any_batches(rows: list[dict[str, int]], cuts: list[int]) -> None:
    log = MessageLog()
    for batch in parts(tracked(rows, 4), cuts):
        log.update(batch, batch.table.udp_sport.astype(np.int32))
    assert log.packets is not None
    assert (log.messages.tolist(), log.packets.tolist()) == twin(rows)


def test_grows_and_stops_at_its_limit() -> None:
    rows = [{"opcode": 0x04, "psn": i} for i in range(3000)]
    log, small, few = MessageLog(), MessageLog(most=2999), MessageLog(most_packets=2999)
    for batch in parts(tracked(rows), [1500]):
        for one in (log, small, few):
            one.update(batch, np.zeros(len(batch), np.int32))
    assert len(log.messages) == 3000 and not log.full and log.packets is not None
    assert few.packets is None and (few.messages == log.messages).all()
    assert small.full and (log.messages["packets"] == np.ones(3000)).all()
