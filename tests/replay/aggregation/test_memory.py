"""Slots: claimed, filled, flushed, swapped, and the time for which they are taken."""

from __future__ import annotations

from aggregating import memory, packet

from rocescope.replay.aggregation.columns import DIRECT, ECHO
from rocescope.replay.aggregation.memory import ABSORB, FORWARD, add, flush, release, swap, use
from rocescope.replay.aggregation.state import BIN_PS

WHOLE = 0b111


def test_the_packet_that_completes_a_sum_takes_it_on_and_the_slot_stays():
    held = memory()
    assert add(held, packet(0, 5), 0, 2, WHOLE, 10) == ABSORB
    assert add(held, packet(1, 6, flags=ECHO), 0, 2, WHOLE, 20) == ABSORB
    last = packet(2, 7)
    assert add(held, last, 0, 2, WHOLE, 30) == FORWARD
    assert last["value"][0] == 18 and last["bits"][0] == WHOLE
    assert last["kind"][0] & ECHO  # the mark of the second one
    assert held.cells["owner"][2] and held.cells["done"][2]
    assert held.tally["absorbed"][0] == 2 and held.tally["completed"][0] == 1


def test_a_copy_ends_in_an_incomplete_slot_and_takes_a_complete_sum_on_once_more():
    held = memory()
    add(held, packet(0, 5), 0, 0, 0b11, 0)
    assert add(held, packet(0, 5), 0, 0, 0b11, 0) == ABSORB
    assert held.cells["value"][0] == 5
    add(held, packet(1, 6), 0, 0, 0b11, 0)
    copy = packet(0, 5)
    assert add(held, copy, 0, 0, 0b11, 0) == FORWARD
    assert copy["value"][0] == 11 and copy["bits"][0] == 0b11


def test_a_sum_in_a_slot_saturates_and_does_not_wrap():
    most = (1 << 31) - 1
    for sign, end in ((1, most), (-1, -most - 1)):
        held, last = memory(), packet(1, sign * 3)
        add(held, packet(0, sign * (most - 1)), 0, 0, 0b11, 0)
        add(held, last, 0, 0, 0b11, 0)
        assert last["value"][0] == held.cells["value"][0] == end


def test_values_that_overlap_partly_go_on_alone():
    held = memory()
    add(held, packet(bits=0b011, value=3), 0, 0, WHOLE, 0)
    mixed = packet(bits=0b110, value=9)
    assert add(held, mixed, 0, 0, WHOLE, 0) == FORWARD
    assert mixed["value"][0] == 9 and held.cells["value"][0] == 3


def test_a_flush_takes_the_sum_along_without_adding_a_value_twice():
    for bits, value, expected in ((0b100, 4, (0b111, 7)), (0b001, 1, (0b011, 3))):
        held = memory()
        add(held, packet(bits=0b011, value=3), 0, 0, WHOLE, 0)
        again = packet(bits=bits, value=value)
        flush(held, again, 0, 0, 50)
        assert (again["bits"][0], again["value"][0]) == expected
        assert held.cells["owner"][0] == 0


def test_a_swap_sends_the_evicted_sum_to_its_own_server():
    held = memory()
    add(held, packet(1, 5, job=1, seq=9, priority=3), 0, 0, WHOLE, 0)
    winner = packet(0, 8, job=0, seq=4, priority=7)
    swap(held, winner, 0, 0, 100)
    assert (winner["job"][0], winner["seq"][0], winner["value"][0]) == (1, 9, 5)
    assert winner["bits"][0] == 0b10 and winner["kind"][0] & DIRECT
    assert held.cells["value"][0] == 8 and held.cells["priority"][0] == 7
    assert held.tally["preemptions"][0] == held.tally["evicted"][1] == 1


def test_time_in_use_is_kept_when_bins_widen():
    held = memory()
    use(held, 500, 2500, 1)
    assert held.usage[:, :3].tolist() == [[500, 1000, 500], [500, 1000, 500]]
    use(held, 7000, 20_000, 0)
    assert held.params[BIN_PS] == 4000
    assert held.usage[0].sum() == 15_000 and held.usage[1].sum() == 2000
    add(held, packet(), 0, 3, WHOLE, 20_000)
    release(held, 3, 20_400)
    assert held.usage[0].sum() == 15_400 and held.usage[1].sum() == 2000
