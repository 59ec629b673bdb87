"""Answers of the kernel's RDMA netlink, crafted after include/uapi/rdma/rdma_netlink.h."""

import os
import re
import struct
from pathlib import Path

from rocescope.probes.owners import nldev

NESTED = 0x8000
HEADER = Path("/usr/include/rdma/rdma_netlink.h")


def attribute(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def u32(kind, value):
    return attribute(kind, struct.pack("=I", value))


def u8(kind, value):
    return attribute(kind, bytes([value]))


def message(operation, payload, kind=5):
    return struct.pack("=IHHII", 16 + len(payload), kind << 10 | operation, 2, 1, 99) + payload


DONE = struct.pack("=IHHIIi", 20, 3, 2, 1, 99, 0)
DEVICE = u32(1, 4) + attribute(2, b"mlx5_2\0")
CONNECTED = u32(3, 1) + u32(21, 0x11) + u32(22, 0x22) + u32(23, 5) + u32(24, 6)
CONNECTED += u8(25, 0) + u8(26, 2) + u8(27, 3) + u32(28, os.getpid())
KERNELS = u32(3, 1) + u32(21, 1) + u32(24, 7) + u8(26, 1) + u8(27, 3) + attribute(29, b"ib_core\0")


def table(*entries, entry=20 | NESTED):
    return DEVICE + attribute(19 | NESTED, b"".join(attribute(entry, e) for e in entries))


def test_devices():
    other = u32(1, 5) + attribute(2, b"rxe0\0")
    answer = message(1, DEVICE) + message(1, other) + message(1, attribute(2, b"no index\0"))
    assert nldev.devices(answer + DONE) == [(4, "mlx5_2"), (5, "rxe0")]


def test_queue_pairs():
    answer = message(10, table(KERNELS, CONNECTED)) + message(10, table(u32(21, 9) + u8(27, 77)))
    kernels, connected, odd = nldev.queue_pairs(answer + DONE, "mlx5_2")
    assert (kernels.local_qp, kernels.type, kernels.pid, kernels.command) == (
        *(1, "GSI", None, "ib_core"),
    )
    assert kernels.remote_qp is None
    assert (connected.device, connected.port, connected.type) == ("mlx5_2", 1, "RC")
    assert (connected.local_qp, connected.remote_qp) == (0x11, 0x22)
    assert (connected.rq_psn, connected.sq_psn, connected.state) == (5, 6, "RTS")
    assert connected.pid == os.getpid()
    assert connected.command == Path("/proc/self/comm").read_text().strip()
    assert (odd.local_qp, odd.type, odd.state, odd.pid) == (9, "?", "?", None)


def test_what_is_not_the_answer_is_passed_over():
    good = message(10, table(CONNECTED))
    assert nldev.queue_pairs(message(10, table(CONNECTED), kind=2), "x") == []
    assert nldev.queue_pairs(message(10, table(u32(22, 5))), "x") == []
    assert nldev.queue_pairs(message(10, table(CONNECTED, entry=7)), "x") == []
    for cut in range(len(good)):
        assert len(nldev.queue_pairs(good[:cut], "x")) <= 1


def counter(*queue_pairs, **values):
    pairs = b"".join(attribute(20 | NESTED, u32(21, qp)) for qp in queue_pairs)
    entries = b"".join(
        attribute(
            81 | NESTED,
            attribute(82, name.encode() + b"\0") + attribute(83, struct.pack("=Q", value)),
        )
        for name, value in values.items()
    )
    inner = u32(3, 1) + u32(79, 9) + u32(28, 4711) + attribute(19 | NESTED, pairs)
    return inner + attribute(80 | NESTED, entries)


def counters_of(*entries):
    return DEVICE + attribute(77 | NESTED, b"".join(attribute(78 | NESTED, e) for e in entries))


def test_counters_of_queue_pairs():
    several = counter(0x11, 0x12, out_of_sequence=5, rnr_nak_retry_err=1 << 40)
    answer = message(17, counters_of(several, counter(), counter(0x13))) + DONE
    both, without = nldev.counters(answer, "mlx5_2")
    assert both.queue_pairs == (0x11, 0x12) and (both.device, both.port) == ("mlx5_2", 1)
    assert both.values == {"out_of_sequence": 5, "rnr_nak_retry_err": 1 << 40}
    assert both.pid == 4711
    assert without.queue_pairs == (0x13,) and without.values == {}
    for cut in range(len(answer)):
        assert len(nldev.counters(answer[:cut], "x")) <= 2


def test_counters_of_this_kernel():
    found, reason = nldev.dump_counters()
    assert (reason is None) == bool(found)


def test_this_kernel():
    rows, reason = nldev.dump_queue_pairs()
    assert reason is None or "NETLINK_RDMA" in reason or "table of queue pairs" in reason
    assert reason is None or rows == []


def test_numbers_are_those_of_the_header(unavailable):
    if not HEADER.exists():
        unavailable("needs rdma/rdma_netlink.h: apt install linux-libc-dev")
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    body = re.search(r"enum rdma_nldev_attr \{(.*?)\}", text, re.DOTALL)[1]
    names = [name.strip() for name in body.split(",") if name.strip() and "=" not in name]
    number = {name.removeprefix("RDMA_NLDEV_ATTR_"): i for i, name in enumerate(names)}
    for name, value in (
        *(("DEV_INDEX", 1), ("DEV_NAME", 2), ("PORT_INDEX", 3), ("RES_QP", 19)),
        *(("RES_QP_ENTRY", 20), ("RES_LQPN", 21), ("RES_RQPN", 22), ("RES_RQ_PSN", 23)),
        *(("RES_SQ_PSN", 24), ("RES_TYPE", 26), ("RES_STATE", 27), ("RES_PID", 28)),
        *(("RES_KERN_NAME", 29), ("STAT_RES", 75), ("STAT_COUNTER", 77)),
        *(("STAT_COUNTER_ENTRY", 78), ("STAT_HWCOUNTERS", 80), ("STAT_HWCOUNTER_ENTRY", 81)),
        *(("STAT_HWCOUNTER_ENTRY_NAME", 82), ("STAT_HWCOUNTER_ENTRY_VALUE", 83)),
    ):
        assert number[name] == value
