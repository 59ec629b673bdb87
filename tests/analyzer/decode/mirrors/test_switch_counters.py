"""Counters of Lumina's switch."""

from __future__ import annotations

import pytest

from rocescope.analyzer.decode.mirrors.switch_counters import (
    SwitchCounters,
    check_switch,
    read_switch_counters,
)
from rocescope.analyzer.errors import UnreadableInput

TEXT = "counter: {ingress: {132: 100, 148: 50}, egress: {132: 50, 148: 100, 60: 90, 61: 60}}"


@pytest.fixture
def read(tmp_path):
    def reading(text):
        file = tmp_path / "switch_state_snapshot.yml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_switch_counters(file)

    return reading


def test_ports_that_only_send_are_mirror_ports(read):
    counters = read(TEXT)
    assert counters.ingress == {"132": 100, "148": 50}
    check = check_switch(counters, captured=150)
    assert check.mirror_ports == ["60", "61"] and check.agrees
    assert (check.received_packets, check.mirrored_packets) == (150, 150)
    assert not check_switch(counters, captured=149).agrees


def test_a_mirror_that_lost_packets():
    counters = SwitchCounters({"1": 100}, {"2": 100, "9": 99})
    check = check_switch(SwitchCounters({"1": 100, "2": 1}, counters.egress), captured=99)
    assert (check.mirror_ports, check.mirrored_packets, check.agrees) == (["9"], 99, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("counter: [", "is not YAML"),
        ("a: &a [*a]\n- b", "is not YAML"),
        (b"\xff\xfe\x00", "is not YAML"),
        ("", "expected counter with ingress and egress"),
        ("- 1", "expected counter with ingress and egress"),
        ("counter: 7", "expected counter with ingress and egress"),
        ("counter: {ingress: {1: 5}}", "no egress"),
        ("counter: {ingress: {}, egress: {1: 5}}", "no ingress"),
        ("counter: {ingress: {1: -5}, egress: {1: 5}}", "port 1 is not a number of packets"),
        ("counter: {ingress: {1: yes}, egress: {1: 5}}", "port 1 is not a number of packets"),
        ("counter: {ingress: {1: 5}, egress: {x: 1.5}}", "port x is not a number of packets"),
    ],
)
def test_other_files(text, message, read):
    with pytest.raises(UnreadableInput, match=message):
        read(text)


def test_a_missing_file(tmp_path):
    with pytest.raises(UnreadableInput, match="no such file"):
        read_switch_counters(tmp_path / "none.yml")
