"""Readings of port counters."""

from __future__ import annotations

import json

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.asking import Said
from rocescope.discovery.dialects.registry import DIALECTS, read_counters_now
from rocescope.discovery.port_counters import Bytes, Port, growth, read_counters

# Readings of port counters.


def link(name, sent, received):
    counts = {"tx": {"bytes": sent, "packets": 1}, "rx": {"bytes": received, "packets": 1}}
    return {"ifname": name, "ifindex": 3, "stats64": counts}


def write(folder, **ports):
    folder.mkdir()
    links = [link(name, *counts) for name, counts in ports.items()]
    (folder / "leaf1.link.json").write_text(json.dumps(links))
    return folder


def test_growth_of_ports_in_both_readings(tmp_path):
    before = read_counters(write(tmp_path / "a", up1=(10, 20), up2=(5, 5), gone=(1, 1)))
    after = read_counters(write(tmp_path / "b", up1=(110, 25), up2=(4, 9), new=(1, 1)))
    assert before[Port("leaf1", "up1")] == Bytes(10, 20)
    # The counters of up2 began again: nothing is known.
    assert growth(before, after) == {Port("leaf1", "up1"): Bytes(100, 5)}


def test_a_device_without_counters(tmp_path):
    folder = write(tmp_path / "a")
    (folder / "leaf1.link.json").write_text('[{"ifname": "up1"}, {}]')
    assert read_counters(folder) == {}


@pytest.mark.parametrize(
    "text", ["", "{}", "[", "[1]", '[{"stats64": {"rx": {}}}]', "[" * 100_000, "\udcff"]
)
def test_damaged_answers_are_one_line(tmp_path, text):
    folder = write(tmp_path / "a")
    (folder / "leaf1.link.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=r"leaf1.link.json: not the output of ip -j -s link"):
        read_counters(folder)


@pytest.mark.parametrize("count", [-5, 1 << 63, (1 << 64) * 1000])
def test_counts_that_no_port_has_are_one_line(tmp_path, count):
    folder = write(tmp_path / "a", up1=((1 << 63) - 1, 0))
    assert read_counters(folder) == {Port("leaf1", "up1"): Bytes((1 << 63) - 1, 0)}
    folder = write(tmp_path / "b", up1=(0, count))
    with pytest.raises(UsageError, match=r"leaf1.link.json: not the output of ip -j -s link"):
        read_counters(folder)


def test_a_folder_without_readings(tmp_path):
    with pytest.raises(UsageError, match=r"no NAME.link.json"):
        read_counters(tmp_path)


# Byte counters asked from switches of several dialects.

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
