"""Segment lists from outer IPv6 headers written out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rocescope.analyzer.decode.multipath.srv6 import number_paths
from rocescope.analyzer.wire.packets import I64, U8
from rocescope.analyzer.wire.segments import SegmentLists, parse_usid_format

CARRIER = "fcbbbb00 0101 0201 0102 f001 0000 0000"
SHIFTED = "fcbbbb00 0102 f001 0000 0000 0000 0000"


def ipv6(destination: str, next_header: int = 41, rest: str = "") -> bytes:
    content = bytes.fromhex(rest)
    head = f"60000000 {len(content):04x} {next_header:02x} 40 20010db8" + "00" * 11 + "01"
    return bytes.fromhex(head + destination) + content


def srh(left: int, last: int, *segments: str) -> str:
    """Next header 41, length in 8 bytes beyond the first, type 4, segments left, last entry."""
    return f"29 {2 * len(segments):02x} 04 {left:02x} {last:02x} 00 0000" + "".join(segments)


def numbers(lists: SegmentLists, *packets: bytes, cut: int = 0) -> list[int]:
    data = np.frombuffer(b"".join(packets), np.uint8)
    data.flags.writeable = False
    lengths = np.array([len(p) for p in packets], np.int64)
    begin = np.cumsum(lengths) - lengths
    return numbered(lists, data, begin, begin, lengths - cut)


def numbered(
    lists: SegmentLists, data: U8, outer_ipv6: I64, begin: I64, captured: I64
) -> list[int]:
    out = np.full(len(begin), 99, np.uint32)
    number_paths(lists, data, outer_ipv6, begin, captured.astype(np.uint32), out)
    return out.tolist()


def test_carriers() -> None:
    lists = SegmentLists()
    assert numbers(lists, ipv6(CARRIER), ipv6(SHIFTED), ipv6(CARRIER)) == [1, 2, 1]
    assert lists.names() == [
        "no segments",
        "fcbb:bb00:0101:0201:0102:f001",
        "fcbb:bb00:0102:f001",
    ]
    block, left, empty = lists.usids(lists.segments(2)[0])
    assert (block, left, empty) == ("fcbb:bb00", ["0102", "f001"], 4)


def test_an_ordinary_tunnel_is_no_path() -> None:
    lists = SegmentLists()
    tunnel = "20010db8 0000 0000 0000 0000 0000 0002"
    assert numbers(lists, ipv6(tunnel)) == [0]
    data = np.frombuffer(ipv6(CARRIER), np.uint8)
    minus_one = np.array([-1], np.int64)
    nothing = np.zeros(1, np.int64)
    assert numbered(lists, data, minus_one, nothing, nothing + len(data)) == [0]


def test_routing_header() -> None:
    """The active segment is the destination; behind it come those with lower indices."""
    first, second, third = (f"20010db8 00{i}0 0000 0000 0000 0000 0001" for i in (1, 2, 3))
    lists = SegmentLists()
    packets = [
        ipv6(first, 43, srh(2, 2, third, second, first)),
        ipv6(second, 43, srh(1, 2, third, second, first)),
        ipv6(third, 43, srh(0, 2, third, second, first)),
        ipv6(first, 43, srh(2, 1, third, second)),  # reduced: without the first segment
    ]
    found = numbers(lists, *packets)
    texts = [[f"{s:032x}" for s in lists.segments(n)] for n in found]
    a, b, c = (s.replace(" ", "") for s in (first, second, third))
    assert texts == [[a, b, c], [b, c], [c], [a, b, c]]
    assert found[0] == found[3]
    assert lists.name(found[1]).count(" > ") == 1


def test_lengths_that_lie() -> None:
    lists = SegmentLists()
    huge = ipv6(CARRIER, 43, "29 ff 04 ff ff 00 0000" + "00" * 16)
    assert numbers(lists, huge) == [1]  # the header is not there: the carrier alone
    left_beyond = ipv6(CARRIER, 43, srh(200, 200, SHIFTED))
    assert numbers(lists, left_beyond)[0] > 1
    whole = ipv6(CARRIER, 43, srh(1, 1, SHIFTED, CARRIER))
    for cut in range(len(whole)):
        (number,) = numbers(lists, whole, cut=cut)
        assert (number == 0) == (len(whole) - cut < 40)
    loop = ipv6(CARRIER, 0, "00 00 00 00 00 00 00 00" * 20)
    assert numbers(lists, loop) == [1]


@pytest.mark.parametrize(
    ("text", "carrier", "name"),
    [
        ("48:16", "fcbbbb000001 0101 0201 0000 0000 0000", "fcbb:bb00:1:0101:0201"),
        ("16:32", "fcbb 00010101 00000201 00000000 0000", "fcbb:00010101:00000201"),
        ("64:16", "fcbbbb0000000001 0101 0000 0000 0000", "fcbb:bb00:0:1:0101"),
        ("80:8", "fcbbbb00000000010002 01 02 00 00 00 00", "fcbb:bb00:0:1:2:01:02"),
    ],
)
def test_formats(text: str, carrier: str, name: str) -> None:
    lists = SegmentLists(parse_usid_format(text))
    (number,) = numbers(lists, ipv6(carrier))
    assert lists.name(number) == name


def test_memory_is_bounded() -> None:
    lists = SegmentLists()
    many = [ipv6(f"fcbbbb00 {1 + i // 60000:04x} {i % 60000:04x}" + "00" * 8) for i in range(70000)]
    found = numbers(lists, *many)
    assert len(set(found)) == (1 << 16) + 1
    assert lists.name(found[-1]) == "other"
    assert lists.name(found[0]) == "fcbb:bb00:0001"
