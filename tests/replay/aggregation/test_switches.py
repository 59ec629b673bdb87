"""Switches: slots of memory, packets that meet them, links.

Slots: claimed, filled, flushed, swapped, and the time for which they are taken.

Two levels of switches: a rack sums its workers, the PS's switch sums the racks.

Losses, copies and delays of the network: drawn, counted, and harmless to sums.
"""

from __future__ import annotations

import pytest
from aggregating import Bench, memory, packet, small_jobs

from rocescope.replay.aggregation.jobs import WIRE_BYTES
from rocescope.replay.aggregation.run import Conditions, simulate
from rocescope.replay.aggregation.schemes import atp, esa, switchml
from rocescope.replay.aggregation.state import BIN_PS, DIRECT, ECHO, FLOATS, RESENT
from rocescope.replay.aggregation.switches import ABSORB, FORWARD, add, flush, release, swap, use

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


def test_one_packet_per_rack_and_fragment_crosses_the_spines():
    jobs, fabric = small_jobs(
        "workers=6,racks=2,fragments=50,iterations=1,window=10",
        fabric="leaf-spine:leaves=2,spines=1,hosts=4",
    )
    found = simulate(atp({}), jobs, fabric, Conditions(slots=64))
    up = [i for i in range(len(fabric.links.source)) if "spine" in fabric.link_name(i)]
    carried = {fabric.link_name(i): int(found.link_bytes[i]) for i in up}
    # Gradients of the other rack go there, results come back; nothing else crosses.
    assert sorted(carried.values()) == [50 * WIRE_BYTES] * 4
    assert found.tally["whole"][0] == 50 and found.tally["server"][0] == 50
    server = int(fabric.attachments.exit_link[jobs[0].server, 0])
    assert found.link_bytes[server] == 50 * WIRE_BYTES


@pytest.mark.parametrize("scheme", [atp({}), switchml({})], ids=lambda scheme: scheme.name)
def test_a_switch_on_the_way_lets_packets_of_another_rack_pass(tmp_path, scheme):
    switches = ("near", "middle", "root")
    hosts = [(f"{switch}-{number}", switch) for switch in switches for number in range(3)]
    file = tmp_path / "chain.yaml"
    file.write_text(
        "defaults: {rate: 100G, delay: 500ns}\nnodes:\n"
        + "".join(f"  {switch}:\n" for switch in switches)
        + "".join(f"  {host}: {{kind: host}}\n" for host, _ in hosts)
        + "links:\n  - [near, middle]\n  - [middle, root]\n"
        + "".join(f"  - [{host}, {switch}]\n" for host, switch in hosts)
    )
    jobs, fabric = small_jobs(
        "workers=6,racks=3,fragments=50,iterations=1,window=10", fabric=str(file)
    )
    assert fabric.attachments.switch[[*jobs[0].workers, jobs[0].server], 0].tolist() == [
        0, 0, 1, 1, 2, 2, 2,
    ]  # fmt: skip
    found = simulate(scheme, jobs, fabric, Conditions(slots=64, jitter=0.0))
    carried = {
        link: int(found.link_bytes[fabric.find_links(link)].sum()) // WIRE_BYTES
        for link in ("near>middle", "middle>root", "root>middle", "middle>near")
    }
    # The middle switch sums its own rack and adds nothing to the sum of the near one.
    assert carried == {
        "near>middle": 50, "middle>root": 100, "root>middle": 100, "middle>near": 50,
    }  # fmt: skip
    assert found.tally["whole"][0] == 50
    assert found.tally["resent"][0] == found.tally["timeouts"][0] == 0


def test_switchml_sums_racks_at_a_root_and_every_rack_gets_one_result():
    jobs, fabric = small_jobs(
        "workers=6,racks=3,fragments=50,iterations=1,window=10",
        fabric="leaf-spine:leaves=3,spines=1,hosts=4",
    )
    found = simulate(switchml({}), jobs, fabric, Conditions(slots=64, jitter=0.0))
    spine = [i for i in range(len(fabric.links.source)) if "spine" in fabric.link_name(i)]
    carried = sorted(int(found.link_bytes[i]) // WIRE_BYTES for i in spine)
    # To the root and back: one packet per fragment of each other rack, and all of them at the root.
    assert carried == [50] * 4 + [100] * 2
    assert found.tally["whole"][0] == 50 and found.tally["completed"][0] == 150
    server = int(fabric.attachments.exit_link[jobs[0].server, 0])
    assert found.link_bytes[server] == 0


def test_racks_of_switchml_repeat_sums_and_results_that_got_lost():
    jobs, fabric = small_jobs(
        "workers=4,racks=2,fragments=200,iterations=2,window=16",
        fabric="leaf-spine:leaves=2,spines=1,hosts=4",
    )
    lossy = Conditions(slots=32, loss=0.05, jitter=0.0)
    found = simulate(switchml({"rto": "50us"}), jobs, fabric, lossy)  # checks every sum
    assert (found.finished_ps >= 0).all() and found.tally["results"][0] == 4 * 400
    assert found.tally["whole"][0] == 400 and found.tally["timeouts"][0] > 0


def test_an_evicted_sum_goes_to_the_server_of_its_own_job():
    jobs, fabric = small_jobs("count=3,workers=3,fragments=200,window=32,iterations=2")
    found = simulate(esa({}), jobs, fabric, Conditions(slots=48, jitter=2.0))
    assert (found.tally["evicted"] > 0).any()
    exits = fabric.attachments.exit_link[[job.server for job in jobs], 0]
    received = found.link_bytes[exits] // WIRE_BYTES
    assert received.tolist() == found.tally["server"].tolist()


def test_the_result_releases_the_slot_of_its_fragment():
    jobs, fabric = small_jobs("workers=2,fragments=1,iterations=1,window=1")
    still = Conditions(slots=4, jitter=0.0)
    found = simulate(atp({}), jobs, fabric, still)
    to_server_and_back = 2 * (WIRE_BYTES * 80 + 500_000)  # ps at 100 Gb/s
    assert found.usage.sum(1).tolist() == [to_server_and_back] * 2 and found.slots_left == 0
    at_once = simulate(esa({"release": "completion"}), jobs, fabric, still)
    assert at_once.usage.sum() == 0 == at_once.slots_left
    before = found.at_ps - 500_000 - 2 * WIRE_BYTES * 80
    waiting = simulate(atp({}), jobs, fabric, still._replace(until_ps=before))
    assert waiting.tally["completed"][0] == 1 == waiting.slots_left


def test_a_collision_moves_its_window_position_to_another_slot():
    jobs, fabric = small_jobs("count=2,workers=2,fragments=200,iterations=2,window=16")
    full = Conditions(slots=64, jitter=0.2)
    stays, moves = (simulate(atp({"rehash": on}), jobs, fabric, full) for on in ("no", "yes"))
    collided = moves.tally["collisions"].sum()
    assert 0 < collided < stays.tally["collisions"].sum()


def test_reminders_fetch_partial_sums():
    jobs, fabric = small_jobs("count=3,workers=4,fragments=400,window=64,iterations=2")
    slow = {"rto": "20ms", "rehash": "no"}
    conditions = Conditions(slots=72, jitter=0.5)
    without = simulate(atp(slow), jobs, fabric, conditions)
    reminded = simulate(atp({**slow, "reminder": "20us"}), jobs, fabric, conditions)
    assert without.tally["timeouts"].sum() > reminded.tally["timeouts"].sum()
    assert reminded.tally["reminders"].sum() > 0
    assert reminded.finished_ps.max() < without.finished_ps.max()


def test_a_result_releases_a_slot_whose_owner_is_silent():
    jobs, fabric = small_jobs("count=2,workers=3,fragments=300,window=64,iterations=2")
    held = Conditions(slots=64, jitter=2.0)
    slow = {"rto": "1ms", "rehash": "no"}
    never = simulate(atp({**slow, "slot-timeout": "off"}), jobs, fabric, held)
    soon = simulate(atp({**slow, "slot-timeout": "10us"}), jobs, fabric, held)
    assert never.tally["expired"].sum() == 0 < soon.tally["expired"].sum()
    assert (soon.finished_ps >= 0).all()


def test_values_in_floats_pass_the_slot_of_their_fragment():
    bench = Bench(atp({}), "workers=3,fragments=1,iterations=1,window=8")
    bench.gradient(100, 1, 0, FLOATS | RESENT, bench.slots[0])
    bench.until(200)
    cell = bench.cells[bench.slots[0]]
    assert cell["owner"] and cell["bits"] == 0b001 and bench.tally["server"] == 1


def test_a_result_empties_the_slot_of_its_fragment_and_no_other():
    bench = Bench(atp({}), "workers=3,fragments=2,iterations=1,window=8")
    one, other = bench.slots[:2]
    bench.result(100, 0, index=other)
    bench.until(200)
    assert bench.cells["owner"][one] and bench.cells["owner"][other]
    bench = Bench(atp({}), "workers=3,fragments=2,iterations=1,window=8")
    bench.result(100, 0, index=one)
    bench.until(200)
    assert not bench.cells["owner"][one] and bench.cells["owner"][other]


def test_a_retransmission_that_finds_its_sum_complete_gets_it_from_the_switch_again():
    bench = Bench(switchml({}), "workers=2,fragments=1,iterations=1,window=8")
    bench.gradient(100, 1, 0)
    bench.gradient(200, 1, 0, RESENT)
    bench.until(300)
    # The second worker has not begun, so that both results are none of its slots.
    assert bench.tally["whole"] == bench.tally["completed"] == bench.tally["results"] == 1
    assert bench.tally["repeated"] == 2


@pytest.mark.parametrize("scheme", [atp({}), switchml({"rto": "100us"})], ids=lambda s: s.name)
def test_faults_happen_as_often_as_asked_for_and_sums_stay_right(scheme):
    jobs, fabric = small_jobs("workers=4,fragments=500,iterations=1,window=64")
    quiet = simulate(scheme, jobs, fabric, Conditions(slots=256))
    assert not quiet.link_drops.any() and not quiet.tally["resent"][0]
    lost = simulate(scheme, jobs, fabric, Conditions(slots=256, loss=0.05))
    assert 0.03 < lost.link_drops.sum() / lost.hops < 0.07
    copied = simulate(scheme, jobs, fabric, Conditions(slots=256, copies=0.2, delays=0.1))
    assert copied.hops > 1.2 * quiet.hops
    assert (copied.finished_ps >= 0).all() and not copied.tally["wrong"][0]
