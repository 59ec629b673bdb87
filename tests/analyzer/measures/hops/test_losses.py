"""Which packets are lost, and after which tap: every rule, on journeys made by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_network

import numpy as np
import pytest
from journeys import hop
from tracked_batches import START_NS, tracked

from rocescope.analyzer.measures.hops import testimony as module
from rocescope.analyzer.measures.hops.hops import GRACE_NS, LOST, TapHop, TapHops, spread_times
from rocescope.analyzer.measures.hops.losses import decide_losses
from rocescope.analyzer.measures.hops.measure import HopMeasure
from rocescope.analyzer.measures.hops.state import EDGE, VISIT
from rocescope.analyzer.measures.hops.vantage import FabricLinks
from rocescope.analyzer.track.batch import RETRANSMITTED
from rocescope.analyzer.track.state import FLOW
from rocescope.analyzer.wire.taps import Gap

# Which packets are lost, and after which tap: every rule, on journeys made by hand.

ACK = 0x11


@dataclass
class Tracker:
    """What the rules need of the tracker: one FLOW record per flow."""

    flows: np.ndarray = field(default_factory=lambda: np.zeros(8, FLOW))

    def __post_init__(self) -> None:
        self.flows["src"] = np.arange(8)
        self.flows["dst"] = 100

    def in_part(self, flow: int) -> bool:
        return False


def ways(rows, names, tracker=None, fabric=None, addresses=(), **more):
    measure = HopMeasure()
    measure.update(tracked(sorted(rows, key=lambda row: row["time_ns"]), 8))
    return decide_losses(measure.settled(), tracker or Tracker(), names, fabric, addresses, **more)


def journey(number, taps, flow=0, first_limit=64, **more):
    """One packet that is seen at `taps`, with one router between two of them."""
    limits = {tap: first_limit - at for at, tap in enumerate(taps)}
    return [
        hop(int(10_000 * number) + 600 * at, tap, int(number), limits[tap], flow=flow, **more)
        for at, tap in enumerate(taps)
    ]


def back(number, taps):
    """One ACK of flow 1, the other direction of flow 0, over `taps`."""
    return [
        row | {"time_ns": row["time_ns"] + 5_000}
        for row in journey(number, taps, flow=1, opcode=ACK)
    ]


def lost(found):
    return {(w.from_tap, w.to_tap): (len(w.lost), w.expected_by) for w in found.hops if len(w.lost)}


def late_traffic(taps, first_limit=64):
    """Packets of flow 7 so late that the ends of all others can be judged."""
    return [
        row
        for n in range(1_000, 1_003)
        for row in journey(n, taps, flow=7, first_limit=first_limit)
    ]


def traffic(taps, first_limit=64):
    """Packets of flow 7 before and after all others: these taps capture all the time."""
    late = late_traffic(taps, first_limit)
    late = [row | {"psn": row["psn"] + 100 * taps[-1]} for row in late]
    early = [row | {"time_ns": row["time_ns"] - 20_000_000, "psn": row["psn"] + 9} for row in late]
    return early + late


def test_packets_of_a_flow_that_went_on():
    rows = [row for n in range(50) for row in journey(n, [0] if n in (20, 33) else [0, 1])]
    found = ways(rows + late_traffic([0, 1]), ["a", "b"])
    assert lost(found) == {(0, 1): (2, "flow")}
    (way,) = (w for w in found.hops if len(w.lost))
    assert [int(p["label"]) & 0xFFFFFF for p in way.lost] == [20, 33]
    assert (way.packets, way.passed_packets) == (53, 51)


def test_nothing_is_lost_at_the_last_tap():
    rows = [row for n in range(50) for row in journey(n, [0, 1])]
    assert lost(ways(rows, ["a", "b"])) == {}


def test_the_last_packets_are_not_judged():
    rows = [row for n in range(50) for row in journey(n, [0] if n == 49 else [0, 1])]
    found = ways(rows, ["a", "b"])
    assert lost(found) == {}
    assert found.undecided == sum(found.unknown.values()) == 1


def test_while_captures_run_a_packet_may_wait_although_others_pass():
    """A paused priority: 5 packets wait, less than a second so far."""
    rows = [row for n in range(50) for row in journey(n, [0] if 20 <= n < 25 else [0, 1])]
    for after_s, waiting in ((0.6, 5), (1.1, 0)):
        later = [row for n in range(3) for row in journey(after_s * 1e5 + n, [0, 1], flow=7)]
        found = ways(rows + later, ["a", "b"], now_ns=START_NS + int(after_s * 1e9))
        assert (found.undecided, lost(found)) == (
            waiting, {} if waiting else {(0, 1): (5, "flow")},
        )  # fmt: skip
        assert lost(ways(rows + later, ["a", "b"])) == {(0, 1): (5, "flow")}


def test_a_flow_that_never_arrives_by_the_link_of_its_host():
    """Host 0 sends to host 1; what host 1 sends and gets passes tap 2, so flow 0 should."""
    tracker = Tracker()
    tracker.flows["src"][:3] = [0, 1, 5]
    tracker.flows["dst"][:3] = [1, 0, 1]
    rows = [row for n in range(20) for row in journey(n, [0], flow=0)]
    rows += [row for n in range(20) for row in journey(100 + n, [2, 1, 0], flow=1)]
    rows += [row for n in range(20) for row in journey(200 + n, [1, 2], flow=2)]
    found = ways(rows + traffic([0, 1]) + traffic([2]), ["x", "y", "z"], tracker)
    ((place, (packets, reason)),) = lost(found).items()
    assert place[0] == 0
    assert packets == 20
    assert reason in ("host", "destination")


def test_a_flow_that_never_arrives_by_others_to_its_destination():
    tracker = Tracker()
    tracker.flows["src"][:2] = [0, 0]
    tracker.flows["dst"][:2] = [1, 1]
    rows = [row for n in range(20) for row in journey(n, [0], flow=0, first_limit=63)]
    rows += [row for n in range(20) for row in journey(n, [0, 1], flow=1, first_limit=63)]
    found = ways(rows + traffic([0, 1], 63), ["x", "y"], tracker)
    assert lost(found) == {(0, 1): (20, "destination")}


def test_a_flow_that_never_arrives_by_the_names_of_links():
    """Flow 0 ends before spine2; what its destination sends comes from leaf2."""
    names = ["leaf1-spine1", "leaf1-spine2", "leaf2-spine1", "leaf2-spine2"]
    tracker = Tracker()
    tracker.flows["src"][:2] = [0, 1]
    tracker.flows["dst"][:2] = [1, 0]
    rows = [row for n in range(20) for row in journey(n, [1], flow=0, first_limit=63)]
    rows += [row for n in range(20) for row in journey(n, [2, 0], flow=1, first_limit=63)]
    found = ways(rows + traffic([2, 0], 63) + traffic([3], 62), names, tracker)
    assert lost(found) == {(1, 3): (20, "partner")}
    assert found.devices[1, 3] == "spine2"


def test_packets_do_not_return_to_the_device_they_came_from():
    """One leaf is captured: flow 0 leaves by spine2, what its destination sends comes by spine1."""
    names = ["H1-leaf1", "leaf1-spine1", "leaf1-spine2"]
    tracker = Tracker()
    tracker.flows["src"][:2] = [0, 1]
    tracker.flows["dst"][:2] = [1, 0]
    rows = [row for n in range(20) for row in journey(n, [0, 2], flow=0)]
    rows += [row for n in range(20) for row in journey(n, [1, 0], flow=1, first_limit=62)]
    assert lost(ways(rows + late_traffic([0, 2]), names, tracker)) == {}


def two_hosts():
    """Flow 0 from H1 to H2, flow 7 between other hosts; what host 0 or 1 is."""
    tracker = Tracker()
    tracker.flows["src"][:1], tracker.flows["dst"][:1] = 0, 1
    links = [("H1", "s1"), ("s1", "s2"), ("s1", "s3"), ("s2", "s4"), ("s3", "s4"), ("s4", "H2")]
    hosts = {ip_network("10.0.0.1"): "H1", ip_network("10.0.0.2"): "H2"}
    both = [pair for a, b in links for pair in ((a, b), (b, a))]
    fabric = FabricLinks(both, frozenset({"H1", "H2"}), hosts)
    addresses = ["10.0.0.1", "10.0.0.2", *(f"10.9.0.{n}" for n in range(2, 101))]
    return tracker, fabric, addresses


def test_a_flow_that_never_arrives_by_the_links_of_a_fabric():
    """No other packet of these hosts tells that the tap at H2 should have seen flow 0."""
    tracker, fabric, addresses = two_hosts()
    rows = [row for n in range(20) for row in journey(n, [0], flow=0, first_limit=63)]
    rows += traffic([2, 3], 63) + traffic([1], 61)
    names = ["s1-s2", "H2-s4", "eth0", "eth1"]
    assert lost(ways(rows, names, tracker)) == {}
    found = ways(rows, names, tracker, fabric, addresses)
    assert lost(found) == {(0, 1): (20, "fabric")}
    assert [line.split(" taps")[0] for line in found.fabric_limits] == [
        "2 of 4",
        "99 of 101 addresses are not in the fabric file: it does not show the path to them",
    ]


def test_several_next_taps_by_the_links_of_a_fabric():
    tracker, fabric, addresses = two_hosts()
    rows = [row for n in range(20) for row in journey(n, [0], flow=0, first_limit=63)]
    rows += late_traffic([3, 4], 63)
    found = ways(rows, ["H1-s1", "s1-s2", "s1-s3", "eth0", "eth1"], tracker, fabric, addresses)
    assert lost(found) == {(0, -1): (20, "fabric")}
    found = ways(rows, ["H1-s1", "s1-s2", "other", "eth0", "eth1"], tracker, fabric, addresses)
    assert lost(found) == {}  # a path without a tap


def test_other_packets_tell_more_than_a_fabric():
    tracker, fabric, addresses = two_hosts()
    rows = [row for n in range(50) for row in journey(n, [0] if n in (20, 33) else [0, 1])]
    names = ["s1-s2", "s2-s4", "H2-s4"]
    rows += traffic([0, 1]) + traffic([2], 62)
    assert lost(ways(rows, names, tracker, fabric, addresses)) == {
        (0, 1): (2, "flow"),
        (1, 2): (48, "fabric"),
    }


def test_a_tap_that_sees_one_side_only_proves_nothing():
    rows = [row for n in range(20) for row in journey(n, [0], first_limit=63)]
    assert lost(ways(rows, ["x", "y"])) == {}


def test_acknowledged_packets_were_missed_by_the_capture():
    tracker = Tracker()
    tracker.flows["acked"][0], tracker.flows["ack_psn"][0] = 1, 49
    rows = [row for n in range(50) for row in journey(n, [0] if n in (20, 33) else [0, 1])]
    found = ways(rows + late_traffic([0, 1]), ["a", "b"], tracker)
    assert lost(found) == {}
    (missed,) = found.missed
    assert (missed.tap, len(missed.flows), missed.passed) == (1, 2, 51)


class SeenInPart(Tracker):
    """Flow 0 is acknowledged up to PSN 49, and many of its packets pass no tap."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.flows["acked"][0], self.flows["ack_psn"][0] = 1, 49

    def in_part(self, flow: int) -> bool:
        return flow == 0


def test_a_flow_seen_in_part_may_be_retransmitted_on_a_way_without_a_tap():
    """Nothing tells whether its acknowledged packets were lost, or missed by the capture."""
    rows = [row for n in range(50) for row in journey(n, [0] if n in (20, 33) else [0, 1])]
    found = ways(rows + late_traffic([0, 1]), ["a", "b"], SeenInPart())
    assert lost(found) == {} and not found.missed
    assert (found.left, found.unknown[0]) == (2, 2)


@pytest.mark.parametrize("losses", [1, 2])
def test_packets_are_hidden_or_lost_and_their_counts_add_up(losses):
    """Three packets of flow 0 are hidden where fewer of flow 2 are known to be lost."""
    rows = [row for n in range(50) for row in journey(n, [0] if n in (20, 33, 35) else [0, 1])]
    rows += [
        row for n in range(60, 90) for row in journey(n, [0] if n < 60 + losses else [0, 1], flow=2)
    ]
    for n in range(60, 60 + losses):
        rows += [
            row | {"psn": n, "ip_id": 900 + n}
            for row in journey(100 + n, [0, 1], flow=2, verdict=RETRANSMITTED)
        ]
    found = ways(rows + late_traffic([0, 1]), ["a", "b"], SeenInPart())
    assert lost(found) == {(0, 1): (losses, "flow")}
    assert (found.left, found.unknown[0], found.unknown[2], found.missed) == (3, 3, 0, [])
    (hop,) = (hop for hop in found.hops if (hop.from_tap, hop.to_tap) == (0, 1))
    entered = len({row["ip_id"] for row in rows if row["tap"] == 0})
    passed = len({row["ip_id"] for row in rows if row["tap"] == 1})
    assert entered == passed + len(hop.lost) + found.left


def test_what_is_lost_beside_a_flow_seen_in_part_tells_its_losses():
    """Flow 2 loses as many packets at the same time, and retransmits them here."""
    rows = [row for n in range(50) for row in journey(n, [0] if n in (20, 33) else [0, 1])]
    rows += [row for n in range(60, 90) for row in journey(n, [0] if n < 62 else [0, 1], flow=2)]
    for n in (60, 61):
        rows += [
            row | {"psn": n, "ip_id": 900 + n}
            for row in journey(100 + n, [0, 1], flow=2, verdict=RETRANSMITTED)
        ]
    found = ways(rows + late_traffic([0, 1]), ["a", "b"], SeenInPart())
    assert lost(found) == {(0, 1): (4, "flow")}
    assert (found.left, found.missed) == (0, [])


def test_a_capture_that_ended_early_lost_nothing():
    """Packets that tap 0 would have seen first begin at tap 1 after its last packet."""
    rows = [row for n in range(40) for row in journey(n, [0, 1])]
    rows += [row for n in range(40, 50) for row in journey(n, [1], first_limit=63)]
    rows += [row for n in range(50) for row in back(n, [1, 0] if n < 40 else [1])]
    found = ways(rows + late_traffic([1], first_limit=63), ["a", "b"])
    assert lost(found) == {} and found.undecided == 10


def test_requests_acknowledged_after_a_capture_ended_are_not_lost():
    tracker = Requesting()
    rows = [row for n in range(50) for row in journey(n, [0, 1] if n < 40 else [0])]
    for n in (45, 46):  # retransmitted: the network or the capture, nobody knows
        rows += [
            row | {"psn": n, "ip_id": 900 + n}
            for row in journey(100 + n, [0], verdict=RETRANSMITTED)
        ]
    found = ways(rows + late_traffic([0]), ["a", "b"], tracker)
    assert lost(found) == {} and not found.missed


class Requesting(Tracker):
    """Flow 0 has requests, some of them retransmitted, and all are acknowledged up to PSN 49."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.flows["request_packets"][0], self.flows["peer"][0] = 50, 1
        self.flows["acked"][0], self.flows["ack_psn"][0] = 1, 49

    def stream(self, flow: int, which: int) -> dict[str, int]:
        return {"started": 1, "retransmitted": 3, "recovered": 0, "first": 0, "next": 50}


def again(number, psn, taps):
    """A retransmission."""
    rows = journey(number, taps, verdict=RETRANSMITTED)
    return [row | {"psn": psn, "ip_id": 900 + psn} for row in rows]


def test_a_flow_that_moves_to_a_way_without_a_tap():
    """From packet 30 on flow 0 takes another way; ACKs of 30 to 34 are lost, and it repeats them.
    Flow 7 still passes the tap."""
    rows = [row for n in range(50) for row in journey(n, [0, 1] if n < 30 else [0])]
    rows += [row for n in range(30, 35) for row in again(10 + n - 0.5, n, [0])]
    found = ways(rows + late_traffic([0, 1]), ["a", "b"], Requesting())
    assert lost(found) == {}
    assert (found.left, found.elsewhere) == (25, 1)
    assert ({f: n for f, n in found.unknown.items() if n}, found.untapped) == ({0: 25}, {0})


def test_what_passed_before_a_flow_came_to_the_taps_is_no_loss():
    rows = [row for n in range(50) for row in journey(n, [0, 1] if n >= 10 else [0])]
    found = ways(rows + traffic([0, 1]), ["a", "b"], Requesting())
    assert lost(found) == {} and not found.missed and (found.elsewhere, found.left) == (1, 10)


def test_what_was_lost_before_a_flow_came_to_the_taps_is_a_loss_if_nothing_arrived():
    rows = [row for n in range(50) for row in journey(n, [0, 1] if n >= 10 else [0])]
    for n in range(10):
        rows += again(100 + n, n, [0, 1])
    found = ways(rows + late_traffic([0, 1]), ["a", "b"], Requesting())
    assert lost(found) == {(0, 1): (10, "flow")} and found.left == 0


def test_a_loss_right_before_a_flow_moves_to_a_way_without_a_tap_is_counted_as_unknown():
    """PSNs 30 to 34 are lost after tap 0, retransmitted, and everything later goes elsewhere."""
    rows = [row for n in range(35) for row in journey(n, [0, 1] if n < 30 else [0])]
    for n in range(30, 35):
        rows += again(40 + n, n, [0])
    rows += [row for n in range(80, 95) for row in journey(n, [0])]
    for row in rows:
        row["psn"] = row["psn"] - 45 if row["psn"] >= 80 else row["psn"]
    found = ways(rows + late_traffic([0, 1]), ["a", "b"], Requesting())
    assert not found.missed
    assert sum(n for n, _ in lost(found).values()) + found.left == 25 and found.left >= 5


def test_a_sprayed_flow_with_a_way_without_a_tap_lost_nothing_that_can_be_told():
    """Every fourth packet takes another way; two of these were retransmitted."""
    rows = [row for n in range(48) for row in journey(n, [0, 1 + n % 4] if n % 4 < 3 else [0])]
    for n in (3, 7):
        rows += again(60 + n, n, [0, 1])
    found = ways(
        rows + traffic([0, 1]) + traffic([0, 2]) + traffic([0, 3]),
        ["a", "b", "c", "d"],
        Requesting(),
    )
    assert lost(found) == {} and not found.missed and (found.elsewhere, found.left) == (1, 12)


def test_what_a_flow_lost_before_it_moved_is_lost():
    rows = [row for n in range(50) for row in journey(n, [0, 1] if n < 30 and n != 20 else [0])]
    rows += again(24.5, 20, [0, 1])
    found = ways(rows + late_traffic([0, 1]), ["a", "b"], Requesting())
    assert lost(found) == {(0, 1): (1, "flow")}


def test_a_flow_that_never_gets_through_again_has_not_moved():
    """Nothing after the last packet at tap 1 is acknowledged: a fault of the hop."""
    tracker = Requesting()
    tracker.flows["ack_psn"][0] = 29
    rows = [row for n in range(50) for row in journey(n, [0, 1] if n < 30 else [0])]
    rows += [row for n in range(30, 35) for row in again(60 + n, n, [0])]
    found = ways(rows + late_traffic([0, 1]), ["a", "b"], tracker)
    assert lost(found) == {(0, 1): (25, "flow")}
    assert found.left == 0


def test_what_ends_between_two_ways_of_a_flow_was_lost_on_one_of_them():
    rows = [row for n in range(5) for row in journey(n, [0, 1])]
    rows += [row for n in range(5, 8) for row in journey(n, [0])]
    rows += [row for n in range(8, 80) for row in journey(n, [0, 2])]
    rows += traffic([0, 1])
    assert lost(ways(rows, ["a", "b", "c"])) == {}  # tap 2 may not have captured yet
    assert lost(ways(rows + traffic([0, 2]), ["a", "b", "c"])) == {(0, -1): (3, "flow")}


def test_what_ends_before_the_link_of_another_host_proves_nothing():
    """Flow 0 goes on where no tap is. Flow 1, of the same hosts, is seen further, and flow 2 goes
    on to tap 2, on the link of its own host 5."""
    tracker = Tracker()
    tracker.flows["src"][:4] = [0, 0, 0, 5]
    tracker.flows["dst"][:4] = [1, 1, 5, 0]
    rows = [row for n in range(20) for row in journey(n, [0], flow=0, first_limit=63)]
    rows += [row for n in range(20) for row in journey(n, [1], flow=1, first_limit=62)]
    rows += [row for n in range(20) for row in journey(n, [0, 2], flow=2, first_limit=63)]
    rows += [row for n in range(20) for row in journey(n, [2, 0], flow=3, first_limit=64)]
    found = ways(rows + late_traffic([0, 2], 63), ["x", "y", "z"], tracker)
    assert lost(found) == {} and not found.missed


def test_a_flow_that_begins_at_another_tap_moved():
    """Its first packets are not seen at the tap where the others begin, which missed none."""
    rows = [row for n in range(3) for row in journey(n, [1], first_limit=62)]
    rows += [row for n in range(3, 60) for row in journey(n, [0, 2])]
    before = [row for n in range(3) for row in journey(n, [0, 2], flow=6)]
    found = ways(rows + before + late_traffic([0, 2]), ["a", "b", "c"])
    assert not found.missed


def test_acks_that_move_to_a_way_without_a_tap():
    """Their requests were retransmitted before, and never in the half second after."""
    tracker = Requesting()
    tracker.flows["peer"][1] = 0
    rows = [row for n in range(50) for row in journey(n, [0])]
    rows += again(30.5, 12, [0])
    rows += [row for n in range(50) for row in back(n, [1, 0] if n < 30 else [1])]
    late = [row for n in (1_000, 70_000) for row in journey(n, [1, 0], flow=7)]
    found = ways(rows + late, ["a", "b"], tracker)
    assert (1, 0) not in lost(found)
    assert found.left == 20
    soon = [row for n in (1_000, 40_000) for row in journey(n, [1, 0], flow=7)]
    assert lost(ways(rows + soon, ["a", "b"], tracker))[1, 0] == (20, "flow")


@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_silent_link_is_a_fault_if_what_it_lost_is_repeated(is_repeated):
    """Else the capture of tap 1 may have ended. Two flows: one alone repeats what came after a
    loss elsewhere."""
    rows = [row for n in range(50) for row in journey(n, [0, 1] if n < 40 else [0])]
    rows += [row for n in range(50) for row in journey(n + 0.5, [0, 1] if n < 40 else [0], flow=2)]
    rows += [row for n in range(50) for row in back(n, [1, 0]) if n < 40]
    for n in range(40, 50):
        for times in (1, 2):
            repeated = again(20 * times + n, n, [0])
            repeated = [row | {"ip_id": row["ip_id"] + 100 * times} for row in repeated]
            rows += repeated + [row | {"flow": 2} for row in repeated]
    if not is_repeated:
        rows = [row | {"verdict": 0} for row in rows]
    tracker = Requesting()
    tracker.flows["request_packets"][2] = 50
    tracker.flows["ack_psn"][0] = 39
    found = ways(rows + late_traffic([0]), ["a", "b"], tracker)
    if is_repeated:
        ((place, (packets, _)),) = lost(found).items()
        assert (place, packets) == ((0, 1), 63)  # three of them of flow 7
    else:
        assert lost(found) == {} and found.undecided >= 20


def test_acknowledged_but_retransmitted_packets_were_lost():
    tracker = Tracker()
    tracker.flows["acked"][0], tracker.flows["ack_psn"][0] = 1, 49
    rows = [row for n in range(50) for row in journey(n, [0] if n in (20, 33) else [0, 1])]
    for n in (20, 33):
        rows += [
            row | {"psn": n, "ip_id": 900 + n}
            for row in journey(100 + n, [0, 1], verdict=RETRANSMITTED)
        ]
    found = ways(rows + late_traffic([0, 1]), ["a", "b"], tracker)
    assert lost(found) == {(0, 1): (2, "flow")}
    assert all(w.lost["resent"].all() for w in found.hops if len(w.lost))
    assert not found.missed


def test_packets_seen_on_both_sides_of_a_tap_were_missed_there():
    rows = []
    for n in range(50):
        rows += [row for row in journey(n, [0, 1, 2]) if not (n in (7, 8, 30) and row["tap"] == 1)]
    found = ways(rows + late_traffic([0, 1, 2]), ["a", "b", "c"])
    assert lost(found) == {}
    (missed,) = found.missed
    assert (missed.tap, len(missed.flows)) == (1, 3)


def test_parallel_links_without_a_tap_are_no_capture_loss():
    """Half of the packets take a link that no tap sees."""
    rows = []
    for n in range(50):
        rows += [row for row in journey(n, [0, 1, 2]) if not (n % 2 and row["tap"] == 1)]
    found = ways(rows + late_traffic([0, 2]), ["a", "b", "c"])
    assert lost(found) == {}
    assert not found.missed


def test_packets_missed_at_the_first_tap():
    rows = []
    for n in range(50):
        rows += [row for row in journey(n, [0, 1]) if not (n in (10, 20) and row["tap"] == 0)]
    found = ways(rows + late_traffic([0, 1]), ["a", "b"])
    (missed,) = found.missed
    assert (missed.tap, len(missed.flows)) == (0, 2)


def test_without_sampled_taps():
    rows = [row for n in range(50) for row in journey(n, [0] if n == 20 else [0, 1, 2])]
    found = ways(rows + late_traffic([0, 1, 2]), ["a", "b", "c"]).without({1})
    assert all(1 not in (w.from_tap, w.to_tap) for w in found.hops)
    assert not found.missed


def test_spread_times_reach_the_last_time_of_int64_exactly():
    last = np.iinfo(np.int64).max

    with np.errstate(all="raise"):
        assert spread_times(last - 6, last, 3).tolist() == [last - 4, last - 2, last]
        assert spread_times(-last - 1, last, 1).tolist() == [last]
        assert spread_times(-last - 1, last, 2).tolist() == [0, last]


# Lost packets that a tap with gaps may have seen are unknown; others stay lost.

BEGIN, END, DELAY = 1_000_000_000, 2_000_000_000, 5_000_000
GAP = Gap(BEGIN, END, "a file is missing")


def way(from_tap, to_tap, passed=(), lost=()):
    """passed: flows; lost: (flow, time)."""
    edges, packets = np.zeros(len(passed), EDGE), np.zeros(len(lost), LOST)
    edges["flow"] = passed
    for packet, (flow, time) in zip(packets, lost, strict=True):
        packet["flow"], packet["time"] = flow, time
    whole = np.zeros((), EDGE) if len(passed) else None
    if whole is not None:
        whole["packets"], whole["delay_min"], whole["delay_max"] = 10, -DELAY, DELAY // 2
    return TapHop(from_tap, to_tap, total=whole, passed=edges, lost=packets)


def ways_captures(*hops, visits=()):
    names = ["a", "b", "c", "d"]
    table = np.zeros(len(visits), VISIT)
    for row, (flow, tap, first, last) in zip(table, visits, strict=True):
        row["flow"], row["tap"], row["moves"] = flow, tap, 2
        row["first_next_tap"], row["next_tap"] = first, last
    return TapHops(list(hops), [], table, 1, 0, END, 0, 0, 0, names, {}, unknown={0: 1})


def without_hidden(ways, gaps, lives=()):
    """lives: (first, last time) of flows; of all others, longer than any gap."""
    first, last = np.full((2, 9), [[0], [20 * END]])
    for flow, (begin, end) in dict(lives).items():
        first[flow], last[flow] = begin, end
    return module.without_hidden(ways, gaps, first, last)


def lost_captures(found):
    return {(w.from_tap, w.to_tap): w.lost["time"].tolist() for w in found.hops if len(w.lost)}


def test_no_next_tap_is_known_where_packets_went_to_a_tap_with_gaps():
    hops = way(0, 1, passed=[5]), way(0, -1, lost=[(0, 1), (0, END * 2)]), way(2, -1, lost=[(0, 1)])
    found = without_hidden(ways_captures(*hops), {1: [GAP]})
    assert lost_captures(found) == {(2, -1): [1]}
    assert {(w.from_tap, w.to_tap) for w in found.hops} == {(2, -1)}
    assert (found.hidden, found.unknown) == (2, {0: 3})


def test_flows_that_also_went_to_a_tap_with_gaps():
    hops = way(0, 1, passed=[5]), way(0, 2, passed=[5, 6], lost=[(5, 1), (6, 1), (6, BEGIN)])
    found = without_hidden(ways_captures(*hops), {1: [GAP]})
    assert lost_captures(found) == {(0, 2): [1, BEGIN]}
    assert (found.hidden, found.unknown[5]) == (1, 1)


def test_the_edges_of_a_gap_are_as_wide_as_the_longest_delay():
    times = [BEGIN - DELAY - 1, BEGIN - DELAY, BEGIN, END, END + DELAY, END + DELAY + 1]
    hops = way(0, 2, passed=[6], lost=[(5, time) for time in times])
    found = without_hidden(ways_captures(hops), {3: [GAP]})
    assert lost_captures(found) == {(0, 2): [times[0], times[-1]]}
    alone = without_hidden(ways_captures(way(0, 2, lost=[(5, END + GRACE_NS + 1)])), {3: [GAP]})
    assert lost_captures(alone) == {(0, 2): [END + GRACE_NS + 1]}


def test_a_gap_without_begin_or_end():
    hops = way(0, 2, passed=[6], lost=[(5, 1), (5, 10 * END)])
    assert lost_captures(without_hidden(ways_captures(hops), {3: [Gap(None, BEGIN, "")]})) == {
        (0, 2): [10 * END]
    }
    assert lost_captures(without_hidden(ways_captures(hops), {3: [Gap(BEGIN, None, "")]})) == {
        (0, 2): [1]
    }


def test_moves_beside_a_tap_with_gaps_are_unknown():
    visits = [(5, 0, 2, 2), (6, 0, 2, 2), (5, 3, 2, 2), (6, 2, 1, 3)]
    found = without_hidden(ways_captures(way(0, 1, passed=[5]), visits=visits), {1: [GAP]})
    assert found.visits["moves"].tolist() == [0, 2, 2, 0]


def test_a_flow_that_lives_only_during_a_gap_may_have_passed_the_tap():
    """It is sprayed over taps b and c, and the packets to b are in the gap."""
    lives = {5: (BEGIN + 1, END - 1), 6: (BEGIN - DELAY - 1, END)}
    hops = way(0, 2, passed=[5, 6, 7], lost=[(5, BEGIN + 2), (6, BEGIN + 2), (7, BEGIN + 2)])
    found = without_hidden(ways_captures(hops), {1: [GAP]}, lives)
    assert lost_captures(found) == {(0, 2): [BEGIN + 2, BEGIN + 2]}
    assert (found.hidden, found.unknown[5]) == (1, 1)
    # Where other flows show that the tap follows the first one: the same. After another: no.
    follows, elsewhere = way(0, 1, passed=[8]), way(3, 1, passed=[8])
    assert without_hidden(ways_captures(hops, follows), {1: [GAP]}, lives).hidden == 1
    assert without_hidden(ways_captures(hops, elsewhere), {1: [GAP]}, lives).hidden == 0
