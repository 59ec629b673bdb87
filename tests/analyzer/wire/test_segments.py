"""Segment lists and their numbers; lists read from packets are in decode/multipath/test_srv6.py."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.wire.segments import SegmentLists, parse_usid_format


def test_a_list_has_one_number() -> None:
    lists = SegmentLists()
    first, second = 0xFCBB_BB00_0101_0201 << 64, 0x2001_0DB8 << 96 | 1
    numbers = [lists.add((first,)), lists.add((first, second)), lists.add((first,))]
    assert numbers == [1, 2, 1]
    assert lists.segments(2) == (first, second)
    assert lists.name(1) == "fcbb:bb00:0101:0201"
    assert lists.name(9) == "segment list 9"


@pytest.mark.parametrize("text", ["", "32", "32:12", "4:16", "128:16", "a:b", "33:16"])
def test_what_is_no_format(text: str) -> None:
    with pytest.raises(UsageError, match="uSID format"):
        parse_usid_format(text)
