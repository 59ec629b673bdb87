"""Questions to switches of several dialects at once."""

from __future__ import annotations

import json
from ipaddress import ip_address

import numpy as np
from answers import traffic_of
from eos_answers import eos_answers
from switch_lab import check_fabric

from rocescope.discovery.asking import COMMAND, Query, Said
from rocescope.discovery.dialects.registry import DIALECTS
from rocescope.discovery.tracing.asking import (
    MOST_COMMANDS,
    NO_CALCULATOR,
    NOT_ASKED_ON,
    TOO_MANY,
    Asking,
    ports_told,
)
from rocescope.discovery.tracing.paths import ASKED, trace_paths


def queries(number):
    src, dst = ip_address("10.1.1.2"), ip_address("10.1.2.2")
    return [Query(src, dst, 2000 + i, 4791, "swp3") for i in range(number)]


def answer(request):
    """Up 1 for even source ports, up 2 for odd ones, in the words of the system."""
    if request.command == COMMAND:
        lines = [line.split() for line in request.stdin.decode().splitlines()]
        return Said(b"".join(
            json.dumps([{"dst": w[2], "from": w[4], "iif": w[6],
                         "dev": f"up{1 + int(w[10]) % 2}"}]).encode() + b"\n" for w in lines
        ), "")  # fmt: skip
    sport = int(request.command.split("src-l4-port ")[1].split()[0])
    return Said(f"Output Interface: Ethernet{1 + sport % 2}\n".encode(), "")


def test_each_in_the_way_of_its_dialect():
    sent = []

    def run(requests):
        sent.extend(requests)
        return [answer(one) for one in requests]

    dialects = {"e": DIALECTS["eos"], "s": DIALECTS["sonic"], "f": DIALECTS["frr"]}
    asked = [(name, queries(3)) for name in ("e", "s", "f", "unknown")]
    told = ports_told(run, asked, dialects)
    assert [one.ports for one in told] == [
        ["Ethernet1", "Ethernet2", "Ethernet1"],
        [None, None, None],
        ["up1", "up2", "up1"],
        ["up1", "up2", "up1"],
    ]
    assert [one.problem for one in told] == ["", NO_CALCULATOR, "", ""]
    assert [one.device for one in sent] == ["f", "unknown", "e", "e", "e"]
    assert ports_told(run, [], dialects) == []


def test_the_zone_of_an_address_never_reaches_a_device():
    sent = []

    def run(requests):
        sent.extend(requests)
        return [Said(b"", "exit status 1") for _ in requests]

    zoned = ip_address("fd01::1%1\nroute del default\n#")
    dialects = {name: dialect for name, dialect in DIALECTS.items() if dialect.calculator}
    asked = [(name, [Query(zoned, zoned, 2000, 4791, "swp3")]) for name in (*dialects, "linux")]
    ports_told(run, asked, dialects)
    assert len(sent) == len(dialects) + 1 > 3
    for request in sent:
        assert "fd01::1 " in request.command + request.stdin.decode()
        assert b"del default" not in request.command.encode() + request.stdin


def test_problems_and_the_limit_of_commands():
    def run(requests):
        assert len(requests) <= MOST_COMMANDS
        said = [answer(one) for one in requests]
        return [Said(b"", "exit status 1"), Said(b"% odd\n", ""), *said[2:]]

    (told,) = ports_told(run, [("e", queries(3))], {"e": DIALECTS["eos"]})
    assert told.ports == [None, None, "Ethernet1"]
    assert told.problem.endswith("src-l4-port 2000 dst-l4-port 4791`: exit status 1")
    (told,) = ports_told(run, [("e", queries(MOST_COMMANDS + 9))], {"e": DIALECTS["eos"]})
    assert told.ports[-9:] == [None] * 9
    assert told.problem == TOO_MANY


def test_the_limit_counts_all_batches_of_a_switch():
    sent = []

    def run(requests):
        sent.extend(requests)
        return [answer(one) for one in requests]

    left = {}
    batches = [("e", queries(MOST_COMMANDS // 2))] * 5
    told = ports_told(run, batches, {"e": DIALECTS["eos"]}, left)
    assert [sum(p is not None for p in one.ports) for one in told] == [256, 256, 0, 0, 0]
    assert [one.problem for one in told] == ["", "", *[TOO_MANY] * 3]
    ports_told(run, batches, {"e": DIALECTS["eos"]}, left)
    assert len(sent) == MOST_COMMANDS
    assert {one.most_bytes for one in sent} == {64 << 10}


def test_a_switch_that_hangs_is_asked_a_few_times():
    sent = []

    def run(requests):
        sent.extend(requests)
        hangs = Said(b"", "not finished within 30 s")
        return [hangs if one.device == "hung" else answer(one) for one in requests]

    dialects = dict.fromkeys(["hung", "e"], DIALECTS["eos"])
    asked = [("hung", queries(100)), ("e", queries(20)), ("hung", queries(100))]
    hung, well, later = ports_told(run, asked, dialects)
    assert sum(one.device == "hung" for one in sent) == 4
    assert hung.ports == later.ports == [None] * 100
    assert hung.problem.endswith("not finished within 30 s")
    assert later.problem == NOT_ASKED_ON
    assert not well.problem
    assert None not in well.ports


def test_paths_that_eos_switches_name_and_those_of_silent_ones(tmp_path):
    fabric = check_fabric(tmp_path, eos_answers).fabric
    flows = [{"src": "10.1.1.2", "dst": "10.1.2.2", "sport": 49152 + i} for i in range(64)]
    traffic = traffic_of(fabric, flows)

    def run(requests):
        return [answer(one) for one in requests]

    eos = dict.fromkeys(fabric.nodes.names[: fabric.switches], DIALECTS["eos"])
    found = trace_paths(traffic, fabric, Asking(run, "all", eos))
    assert not found.placement.dropped.any()
    assert np.count_nonzero(found.evidence == ASKED) == 64
    taken = [fabric.link_name(int(link)) for link in found.placement.links[:, 1]]
    assert taken == [f"leaf1>spine{1 + i % 2}" for i in range(64)]

    sonic = dict.fromkeys(eos, DIALECTS["sonic"])
    asking = Asking(run, "all", sonic)
    found = trace_paths(traffic, fabric, asking)
    assert found.placement.dropped.all()
    assert asking.report().not_asked == {f"{NO_CALCULATOR} (SONiC)": 64}
    assert asking.report().switches == []
