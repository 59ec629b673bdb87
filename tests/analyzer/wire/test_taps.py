"""Capture filters: which of them keep all packets of every flow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rocescope.analyzer.wire.taps import Tap

ROOT = Path(__file__).parents[3]
RECOMMENDED = re.findall(
    r"['`\"]((?:udp|ip6?|vlan)\b[^'`\"\n]*\b4791\b[^'`\"\n]*)['`\"]",
    (ROOT / "docs/captures.md").read_text() + (ROOT / "tests/lab/topology.py").read_text(),
)


def leaves_out(expression: str) -> bool:
    return Tap("x", 1, filter=expression).leaves_out_roce


def test_the_recommended_filters_keep_all() -> None:
    assert len(RECOMMENDED) == 4
    assert [each for each in RECOMMENDED if leaves_out(each)] == []


@pytest.mark.parametrize(
    "expression",
    [
        "udp",
        "vlan and udp dst port 4791",
        "udp port 4791 or arp",
        "arp || udp port 4791",
        "vlan && udp port 4791",
        "UDP DST PORT 4791 OR ARP",
        "src or dst port 4791",
        "udp dst or src port 4791 or icmp",
        "((udp port 4791)or(arp or not tcp))",
        "arp or (host 10.0.0.1 and (tcp or icmp)) or (icmp or udp dst port 4791)",
        "udp dst port 4791 or vlan or (vlan and udp dst port 4791) or arp",
    ],
)
def test_a_filter_with_all_roce_keeps_all(expression: str) -> None:
    assert not leaves_out(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "not udp port 4791",
        "!udp port 4791",
        "! udp port 4791 or arp",
        "not (udp port 4791 or arp)",
        "udp dst port 4791 and host 10.0.0.1",
        "udp dst port 4791 and udp[8] = 0x0a",
        "udp dst port 4791 or arp and host 10.0.0.1",  # both of equal precedence
        "(udp dst port 4791 or arp) && host 10.0.0.1",
        "(udp dst port 4791) or (arp) and (host 10.0.0.1)",
        "arp or (udp dst port 4791 and src host 10.0.0.1)",
        "udp dst port 4791 or (vlan and src host 10.0.0.1)",
        "vlan 5 or udp dst port 4791",
        "ip and udp dst port 4791 or src host 10.0.0.1",
        "udp src port 4791",
        "src and dst port 4791",
        "udp dst port 47910 or arp",
        "arp or",
        ")(or arp",
        "((((" * 50 + "arp",
    ],
)
def test_a_filter_that_may_leave_out_roce(expression: str) -> None:
    assert leaves_out(expression)
