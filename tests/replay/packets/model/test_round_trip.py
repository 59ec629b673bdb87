"""Base RTT of every pair, not of the median link."""

from __future__ import annotations

import numpy as np

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.model.arrays import fabric_arrays
from rocescope.replay.packets.model.round_trip import bdp_packets, round_trips


def test_pairs_within_a_leaf_and_between_leaves() -> None:
    fabric = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2,rate=800G,delay=500ns")
    trips = round_trips(np.array([0, 0]), np.array([1, 2]), fabric_arrays(fabric), 4160, 64)
    assert trips.ps.tolist() == [
        2 * 2 * 500_000 + 2 * (41_600 + 640),
        2 * 4 * 500_000 + 4 * (41_600 + 640),
    ]
    assert trips.hops.tolist() == [2, 4]
    assert trips.bits_per_second.tolist() == [800_000_000_000] * 2
    assert bdp_packets(trips, 4160).tolist() == [50, 100]


def test_the_longest_of_unlike_paths_and_all_ports() -> None:
    slow = "leaf-spine:leaves=2,spines=2,hosts=1,rate=100G,delay=1us,slow=leaf1>spine2:10G"
    trips = round_trips(np.array([0]), np.array([1]), fabric_arrays(parse_fabric(slow)), 1000, 64)
    assert trips.ps.tolist() == [8_000_000 + 3 * 80_000 + 800_000 + 4 * 5_120]
    planes = parse_fabric("multi-plane:planes=4,leaves=2,spines=2,hosts=2,rate=100G,delay=500ns")
    trips = round_trips(np.array([0]), np.array([3]), fabric_arrays(planes), 4160)
    assert trips.bits_per_second.tolist() == [400_000_000_000]


def test_a_pair_without_a_path() -> None:
    cut = parse_fabric("leaf-spine:leaves=2,spines=1,hosts=1,down=leaf2-spine1")
    trips = round_trips(np.array([0]), np.array([1]), fabric_arrays(cut), 4160)
    assert trips.ps.tolist() == [1]
    assert bdp_packets(trips, 4160).tolist() == [1]
