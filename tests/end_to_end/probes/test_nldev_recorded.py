"""Answers of a real kernel: Linux 6.1, two rxe devices on a veth pair, `ib_send_bw` between them.

Recorded while it ran (RANK=3 ib_send_bw -N -d rxe0 -x 1 -D 25 -s 1024). What perftest
printed of itself, and what `rdma -j resource show qp` said a moment later, is beside.
"""

import json

from rocescope.probes.owners import nldev
from rocescope.probes.owners.queue_pairs import parse_resources

DEVICES = bytes.fromhex(
    "6c0000000114020001000000d701000008000100000000000900020072786530000000000800030001000000"
    "0c000400763c2201000000000c000600b8a741feffb151780c000700b8a741feffb1517805000e0001000000"
    "050054000000000009004300726f6365000000006c0000000114020001000000d70100000800010001000000"
    "09000200727865310000000008000300010000000c000400763c2201000000000c000600eccbabfeff9a710c"
    "0c000700eccbabfeff9a710c05000e0001000000050054000000000009004300726f63650000000014000000"
    "0300020001000000d701000000000000"
)

RXE0 = bytes.fromhex(
    "b40000000a14020001000000d701000008000100000000000900020072786530000000009000130054001400"
    "0800030001000000080015001100000008003c000100000008001c00d9010000080016001100000008001700"
    "2b894e0008001800be50f100050019000000000005001a000200000005001b00030000003800140008000300"
    "0100000008001500010000000c001d0069625f636f726500080018000000000005001a000100000005001b00"
    "03000000140000000300020001000000d701000000000000"
)

RXE1 = bytes.fromhex(
    "b40000000a14020001000000d701000008000100010000000900020072786531000000009000130054001400"
    "0800030001000000080015001100000008003c000100000008001c00d5010000080016001100000008001700"
    "dd51f1000800180000000000050019000000000005001a000200000005001b00020000003800140008000300"
    "0100000008001500010000000c001d0069625f636f726500080018000000000005001a000100000005001b00"
    "03000000140000000300020001000000d701000000000000"
)

RDMA_TOOL = json.dumps(
    [
        {
            "ifindex": 0,
            "ifname": "rxe0",
            "port": 1,
            "lqpn": 17,
            "rqpn": 17,
            "type": "RC",
            "state": "RTS",
            "rq-psn": 5146923,
            "sq-psn": 15816820,
            "path-mig-state": "MIGRATED",
            "pdn": 1,
            "pid": 473,
            "comm": "ib_send_bw",
        },
        {
            "ifindex": 0,
            "ifname": "rxe0",
            "port": 1,
            "lqpn": 1,
            "type": "GSI",
            "state": "RTS",
            "sq-psn": 0,
            "comm": "ib_core",
        },
        {
            "ifindex": 1,
            "ifname": "rxe1",
            "port": 1,
            "lqpn": 17,
            "rqpn": 17,
            "type": "RC",
            "state": "RTR",
            "rq-psn": 15817005,
            "sq-psn": 0,
            "path-mig-state": "MIGRATED",
            "pdn": 1,
            "pid": 469,
            "comm": "ib_send_bw",
        },
        {
            "ifindex": 1,
            "ifname": "rxe1",
            "port": 1,
            "lqpn": 1,
            "type": "GSI",
            "state": "RTS",
            "sq-psn": 0,
            "comm": "ib_core",
        },
    ]
)

PRINTED = {"rxe0": (0x11, 0xF11149), "rxe1": (0x11, 0x4E892B)}
"""Queue pair number and initial PSN that each end of ib_send_bw printed."""


def test_devices():
    assert nldev.devices(DEVICES) == [(0, "rxe0"), (1, "rxe1")]


def test_queue_pairs():
    rows = nldev.queue_pairs(RXE0, "rxe0") + nldev.queue_pairs(RXE1, "rxe1")
    jobs = {row.device: row for row in rows if row.type == "RC"}
    for here, there in (("rxe0", "rxe1"), ("rxe1", "rxe0")):
        row = jobs[here]
        assert (row.port, row.local_qp, row.remote_qp) == (1, PRINTED[here][0], PRINTED[there][0])
    # The client's peer sends no requests; its own have advanced, modulo 2^24.
    assert jobs["rxe0"].rq_psn == PRINTED["rxe1"][1]
    assert jobs["rxe0"].sq_psn > PRINTED["rxe0"][1]
    assert [(row.device, row.local_qp, row.command) for row in rows if row.pid is None] == [
        ("rxe0", 1, "ib_core"),
        ("rxe1", 1, "ib_core"),
    ]


def test_the_tool_says_the_same():
    told, reason = parse_resources(RDMA_TOOL)
    assert reason is None
    asked = nldev.queue_pairs(RXE0, "rxe0") + nldev.queue_pairs(RXE1, "rxe1")
    for attribute in ("device", "port", "local_qp", "remote_qp", "type", "state", "pid"):
        assert [getattr(r, attribute) for r in asked] == [getattr(r, attribute) for r in told]
