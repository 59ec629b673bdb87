"""Link types in messages."""

from __future__ import annotations

import dpkt.pcap
import pytest

from rocescope.analyzer.capture.framing import NAMES, canonical, label, supported, why_unsupported
from rocescope.analyzer.wire.frames import SUPPORTED_LINK_TYPES


def test_numbers_are_those_of_dpkt():
    ours = {name: number for number, name in NAMES.items()}
    assert ours["ETHERNET"] == dpkt.pcap.DLT_EN10MB
    for name in ("LINUX_SLL", "IEEE802_11", "PFLOG", "NULL", "FDDI", "PPP", "SLIP"):
        assert ours[name] == getattr(dpkt.pcap, f"DLT_{name}"), name


@pytest.mark.parametrize("number", [12, 14, 101])
def test_raw_ip_has_three_numbers(number):
    assert canonical(number) == 101 and supported(canonical(number))


def test_other_numbers_stay():
    assert [canonical(n) for n in (1, 113, 999)] == [1, 113, 999]


def test_why_a_link_type_is_not_supported():
    assert label(999) == "LINKTYPE_unknown (999)"
    assert not supported(105)
    message = why_unsupported(105)
    assert message.startswith("link type LINKTYPE_IEEE802_11 (105) is not supported")
    assert all(label(number) in message for number in SUPPORTED_LINK_TYPES)
    for number in (197, 247):
        assert "native InfiniBand capture, not RoCE" in why_unsupported(number)
