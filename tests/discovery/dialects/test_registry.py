"""The registry of dialects."""

from __future__ import annotations

import json

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.dialects.registry import DIALECTS, read_all_counters
from rocescope.discovery.port_counters import Bytes, Port


def test_dialects_are_found_by_their_name():
    assert list(DIALECTS) == ["linux", "frr", "sonic", "cumulus", "eos", "nxos", "junos", "vrp"]
    assert all(dialect.name == name for name, dialect in DIALECTS.items())


def test_counters_of_several_systems_in_one_folder(tmp_path):
    ports = {"Ethernet1": {"interfaceCounters": {"inOctets": 7, "outOctets": 9}}, "Vxlan1": {}}
    (tmp_path / "a.eos-interfaces.json").write_text(json.dumps({"interfaces": ports}))
    row = {"interface": "Ethernet1/1", "eth_inbytes": "5", "eth_outbytes": "6"}
    table = {"TABLE_interface": {"ROW_interface": row}}
    (tmp_path / "b.nxos-interfaces.json").write_text(json.dumps(table))
    expected = {Port("a", "Ethernet1"): Bytes(9, 7), Port("b", "Ethernet1/1"): Bytes(6, 5)}
    assert read_all_counters(tmp_path) == expected
    stats = {"rx": {"bytes": 1}, "tx": {"bytes": 2}}
    link = [{"ifname": "swp1", "stats64": stats}]
    (tmp_path / "c.link.json").write_text(json.dumps(link))
    assert read_all_counters(tmp_path) == {**expected, Port("c", "swp1"): Bytes(2, 1)}


@pytest.mark.parametrize("value", [-1, "many", None, 1 << 70])
def test_odd_counters_are_named(value, tmp_path):
    ports = {"Ethernet1": {"interfaceCounters": {"inOctets": value, "outOctets": 9}}}
    (tmp_path / "a.eos-interfaces.json").write_text(json.dumps({"interfaces": ports}))
    with pytest.raises(UsageError, match=r"a\.eos-interfaces\.json: .*inOctets"):
        read_all_counters(tmp_path)


def test_a_folder_without_counters(tmp_path):
    with pytest.raises(UsageError, match=r"has no NAME\.link\.json"):
        read_all_counters(tmp_path)
