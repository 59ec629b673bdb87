"""Byte counters asked from switches of several dialects."""

from __future__ import annotations

import json

from rocescope.discovery.asking import Said
from rocescope.discovery.counter_readings import read_counters_now
from rocescope.discovery.dialects.registry import DIALECTS
from rocescope.discovery.port_counters import Bytes, Port

KERNEL = {
    "ifname": "swp1",
    "stats64": {"rx": {"bytes": 7}, "tx": {"bytes": 9}},
}


def test_every_dialect_with_counters_is_asked():
    counters = {"inOctets": 5, "outOctets": 6}
    eos = {"interfaces": {"Ethernet1": {"interfaceCounters": counters}}}
    asked = []

    def run(requests):
        asked.extend(requests)
        return [
            Said(json.dumps(eos if one.device == "e" else [KERNEL]).encode(), "")
            for one in requests
        ]

    dialects = {"l": "linux", "f": "frr", "c": "cumulus", "e": "eos", "v": "vrp"}
    dialects = {name: DIALECTS[dialect] for name, dialect in dialects.items()}
    found, silent = read_counters_now(run, dialects, ["l", "f", "c", "e", "v", "other"])
    for name in ("l", "f", "c"):
        assert found[Port(name, "swp1")] == Bytes(9, 7)
    assert found[Port("e", "Ethernet1")] == Bytes(6, 5)
    assert {one.device: one.command for one in asked}["l"] == "ip -j -s link"
    assert silent == [
        f"port counters: {name}: not a device whose counters are read" for name in ("v", "other")
    ]


def test_devices_that_do_not_answer_are_named():
    def run(requests):
        return [Said(b"", "no route to host"), Said(b"{\x1b[2J", "")]

    linux = DIALECTS["linux"]
    found, silent = read_counters_now(run, {"a": linux, "b": linux}, ["a", "b"])
    assert found == {}
    assert silent[0] == "port counters: a: `ip -j -s link`: no route to host"
    assert silent[1].startswith("port counters: b: `ip -j -s link`: not the output of")
    assert silent[1].isprintable()
