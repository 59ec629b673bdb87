"""The kernel's table of queue pairs by netlink, for hosts without the `rdma` tool.

Numbers: include/uapi/rdma/rdma_netlink.h. A dump of RES_QP_GET takes the index of a
device, so the devices are requested first. The kernel answers in messages of
nested attributes: RES_QP holds RES_QP_ENTRYs, each one queue pair.
"""
# pyroute2 0.9.7 has no messages of RDMA, and takes 17 MB and doubles the time to load the owners.

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ..hooks.clsact import encode_attribute, read_attributes
from .queue_pairs import QP_STATES, QP_TYPES, Resource, command_of

_NETLINK_RDMA = 20
_CLIENT_NLDEV = 5
_GET, _RES_QP_GET, _STAT_GET = 1, 10, 17
_REQUEST_DUMP = 1 | 0x300  # NLM_F_REQUEST | NLM_F_DUMP
_ERROR, _DONE = 2, 3
_TIMEOUT_S = 5.0
_RECEIVE_BYTES = 1 << 18
_HEADER = 16

# enum rdma_nldev_attr.
_DEVICE_INDEX, _DEVICE_NAME, _PORT = 1, 2, 3
_QP_TABLE, _QP_ENTRY = 19, 20
_LOCAL_QP, _REMOTE_QP, _RQ_PSN, _SQ_PSN = 21, 22, 23, 24
_TYPE, _STATE, _PID, _KERNEL_NAME = 26, 27, 28, 29
_STAT_RESOURCE, _COUNTER, _COUNTER_ENTRY = 75, 77, 78
_VALUES, _VALUE_ENTRY, _VALUE_NAME, _VALUE = 80, 81, 82, 83
_OF_QUEUE_PAIRS = _QP_TABLE
"""What RDMA_NLDEV_ATTR_STAT_RES takes for queue pairs: RDMA_NLDEV_ATTR_RES_QP."""

_TYPES = {0: "SMI", 1: "GSI", **QP_TYPES}
"""enum ib_qp_type."""


def dump_queue_pairs() -> tuple[list[Resource], str | None]:
    """All rows of this network namespace's devices, and the reason if they are not available."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_RDMA) as handle:
            handle.settimeout(_TIMEOUT_S)
            rows: list[Resource] = []
            for index, name in devices(_dump(handle, _GET, b"")):
                selected = encode_attribute(_DEVICE_INDEX, struct.pack("=I", index))
                rows += queue_pairs(_dump(handle, _RES_QP_GET, selected), name)
            return rows, None
    except OSError as error:
        if error.errno == errno.EPROTONOSUPPORT:
            return [], "the kernel has no NETLINK_RDMA: its RDMA modules are not loaded"
        return [], f"the kernel's table of queue pairs: {(error.strerror or str(error)).lower()}"


@dataclass(frozen=True, slots=True)
class QueuePairCounters:
    """Counters of the adapter for queue pairs that are bound to them: `rdma statistic qp`."""

    device: str
    port: int | None
    queue_pairs: tuple[int, ...]
    """QPNs; the adapter counts several together where it was told to."""
    pid: int | None
    values: dict[str, int]


def dump_counters() -> tuple[list[QueuePairCounters], str | None]:
    """Counters of queue pairs of all devices, and the reason if there are none.

    Adapters count per queue pair only after `rdma statistic qp set`.
    """
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_RDMA) as handle:
            handle.settimeout(_TIMEOUT_S)
            found: list[QueuePairCounters] = []
            reason = "no adapter counts per queue pair: see rdma-statistic(8)"
            for index, name in devices(_dump(handle, _GET, b"")):
                selected = encode_attribute(_DEVICE_INDEX, struct.pack("=I", index))
                selected += encode_attribute(_STAT_RESOURCE, struct.pack("=I", _OF_QUEUE_PAIRS))
                try:
                    found += counters(_dump(handle, _STAT_GET, selected), name)
                except OSError as error:
                    reason = f"counters of {name}: {(error.strerror or str(error)).lower()}"
            return found, None if found else reason
    except OSError as error:
        return [], f"counters of queue pairs: {(error.strerror or str(error)).lower()}"


def counters(messages: bytes, device: str) -> list[QueuePairCounters]:
    """The counters in the answer to STAT_GET, without those that have no queue pair."""
    found = []
    for values in _entries(messages, _COUNTER, _COUNTER_ENTRY):
        numbers = tuple(
            _number(value)
            for _, pair in read_attributes(values.get(_QP_TABLE, b""))
            for name, value in read_attributes(pair)
            if name == _LOCAL_QP
        )
        if numbers:
            found.append(_counters(values, device, numbers))
    return found


def _entries(messages: bytes, table: int, entry: int) -> Iterator[dict[int, bytes]]:
    """The values of each entry of the tables of this kind."""
    for payload in _payloads(messages):
        for kind, inner in read_attributes(payload):
            if kind == table:
                yield from (
                    dict(read_attributes(one)) for of, one in read_attributes(inner) if of == entry
                )


def _counters(
    values: dict[int, bytes], device: str, queue_pairs: tuple[int, ...]
) -> QueuePairCounters:
    read = {}
    for kind, entry in read_attributes(values.get(_VALUES, b"")):
        pair = dict(read_attributes(entry))
        if kind == _VALUE_ENTRY and _VALUE_NAME in pair and len(pair.get(_VALUE, b"")) == 8:
            read[_text(pair[_VALUE_NAME])] = _number(pair[_VALUE])
    port, pid = (_number(values[kind]) if kind in values else None for kind in (_PORT, _PID))
    return QueuePairCounters(device, port, queue_pairs, pid, read)


def devices(messages: bytes) -> list[tuple[int, str]]:
    """(index, name) of each device in the answer to GET."""
    found = []
    for payload in _payloads(messages):
        values = dict(read_attributes(payload))
        if len(values.get(_DEVICE_INDEX, b"")) == 4:
            found.append((_number(values[_DEVICE_INDEX]), _text(values.get(_DEVICE_NAME, b""))))
    return found


def queue_pairs(messages: bytes, device: str) -> list[Resource]:
    """The rows in the answer to RES_QP_GET, without rows that have no QPN."""
    entries = _entries(messages, _QP_TABLE, _QP_ENTRY)
    return [_resource(values, device) for values in entries if _LOCAL_QP in values]


def _resource(values: dict[int, bytes], device: str) -> Resource:
    numbers = {kind: _number(value) for kind, value in values.items() if len(value) in (1, 2, 4, 8)}
    state, pid = numbers.get(_STATE, -1), numbers.get(_PID)
    return Resource(
        device=device,
        port=numbers.get(_PORT),
        local_qp=numbers.get(_LOCAL_QP, 0),
        remote_qp=numbers.get(_REMOTE_QP),
        type=_TYPES.get(numbers.get(_TYPE, -1), "?"),
        state=QP_STATES[state] if 0 <= state < len(QP_STATES) else "?",
        rq_psn=numbers.get(_RQ_PSN),
        sq_psn=numbers.get(_SQ_PSN),
        pid=pid,
        command=_text(values.get(_KERNEL_NAME, b"")) if pid is None else command_of(pid),
    )


def _dump(handle: socket.socket, operation: int, attributes: bytes) -> bytes:
    """All messages of the answer to a request; OSError with the kernel's reason."""
    kind = _CLIENT_NLDEV << 10 | operation
    length = _HEADER + len(attributes)
    handle.send(struct.pack("=IHHII", length, kind, _REQUEST_DUMP, 1, 0) + attributes)
    answer = b""
    while True:
        part = handle.recv(_RECEIVE_BYTES)
        answer += part
        for message, payload in _messages(part):
            if message == _DONE:
                return answer
            if message == _ERROR and len(payload) >= 4:
                (number,) = struct.unpack_from("=i", payload)
                if number:
                    raise OSError(-number, os.strerror(-number))
                return answer
        if not part:
            return answer


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER <= len(data):
        length, kind = struct.unpack_from("=IH", data, at)
        if length < _HEADER or at + length > len(data):
            return
        yield kind, data[at + _HEADER : at + length]
        at += length + -length % 4


def _payloads(data: bytes) -> Iterator[bytes]:
    """Attributes of each message that answers the request."""
    for kind, payload in _messages(data):
        if kind >> 10 == _CLIENT_NLDEV:
            yield payload


def _number(value: bytes) -> int:
    return int.from_bytes(value, "little" if struct.pack("=H", 1)[0] else "big")


def _text(value: bytes) -> str:
    return value.split(b"\0")[0].decode("utf-8", "replace")
