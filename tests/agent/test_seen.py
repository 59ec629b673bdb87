"""Blind or not: a zero is never exported where packets cannot be seen."""

from __future__ import annotations

import pytest

from rocescope.agent.adapters import Adapter
from rocescope.agent.seen import (
    ADAPTER,
    GONE,
    NOT_ATTACHED,
    UNKNOWN,
    Bypass,
    blind,
    blind_because,
    placed,
)

HARDWARE, SOFTWARE = Adapter("mlx5_0", is_software=False), Adapter("rxe0", is_software=True)


@pytest.mark.parametrize(
    ("attached", "gone", "adapters", "counted", "bypassed", "reason"),
    [
        (True, False, [], 0, False, None),
        (True, False, [SOFTWARE], 0, False, None),
        (True, False, [SOFTWARE], 0, True, None),
        (True, False, [HARDWARE], 0, False, ADAPTER),
        (True, False, [HARDWARE], 10, False, None),
        (True, False, [HARDWARE], 10, True, ADAPTER),
        (True, False, None, 0, False, UNKNOWN),
        (True, False, None, 10, False, None),
        (True, True, [], 10, False, GONE),
        (False, False, [HARDWARE], 0, False, NOT_ATTACHED),
    ],
)
def test_reasons(attached, gone, adapters, counted, bypassed, reason):
    assert blind_because(attached, gone, adapters, counted, bypassed) == reason
    if reason is not None:
        assert blind("eth2", reason).sentence


def test_bypass_is_found_by_what_has_grown():
    bypass = Bypass()
    looks = [
        (0, 5_000, False),  # before the start
        (1_000, 6_000, False),
        (1_000_000, 1_005_000, False),
        (1_000_010, 1_005_021, True),  # a long past with all packets hides nothing
        (1_000_010, 1_005_021, True),  # idle
        (1_000_020, 1_005_041, False),
        (1_000_020, 7, False),  # reset
        (1_000_020, 8, True),
    ]
    for counted, moved, found in looks:
        bypass.look(counted, {"mlx5_0": moved})
        assert bypass.found == found, (counted, moved)


def test_names_and_namespaces():
    assert placed("eth2", None) == ("eth2", None) and placed("eth2", "blue") == ("eth2", "blue")
    assert placed("red:eth2", "blue") == ("eth2", "red")
    assert placed("pid:7:eth2", None) == ("eth2", "pid:7")
