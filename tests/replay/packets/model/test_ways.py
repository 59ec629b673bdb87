"""Times through an idle network, against plain recursion over the routes."""

from __future__ import annotations

import numpy as np
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.model.arrays import ATTACHED, FabricArrays, fabric_arrays
from rocescope.replay.packets.model.ways import Ways, by_any_link

FABRICS = (
    "leaf-spine:leaves=3,spines=2,hosts=2,rate=400G,delay=7ns,uplink_rate=133G",
    "fat-tree:k=4,rate=800G,delay=20ns,down=leaf1-spine1,slow=leaf3-spine3:70G",
    "multi-plane:planes=2,leaves=2,spines=2,hosts=2,rate=100G,delay=30ns,slow=host1-plane2.leaf1:7G",
    "leaf-spine:leaves=2,spines=1,hosts=1,down=leaf2-spine1",
)


def plain(arrays: FabricArrays, src: int, dst: int, size: int, longest: bool) -> int:
    """-1 without a path."""
    edge = int(arrays.host_edge[dst])
    best = max if longest else min

    def took(link: int) -> int:
        service = (size * int(arrays.ps_per_byte_q20[link]) + (1 << 19)) >> 20
        return service + int(arrays.delay_ps[link])

    def onwards(switch: int) -> int | None:
        group = int(arrays.route[switch, edge])
        if group == ATTACHED:
            return 0
        ways = []
        if group >= 0:
            for i in range(int(arrays.group_start[group]), int(arrays.group_start[group + 1])):
                link = int(arrays.members[i])
                rest = onwards(int(arrays.target[link]))
                if rest is not None:
                    ways.append(took(link) + rest)
        return best(ways, default=None)

    ways = []
    for port, switch in enumerate(arrays.host_switch[src].tolist()):
        middle = onwards(switch) if switch >= 0 and edge >= 0 else None
        if middle is not None:
            ways.append(took(int(arrays.access[src, port])) + middle)
    exits = [took(int(link)) for link in arrays.exits[dst] if link >= 0]
    return best(ways) + best(exits) if ways else -1


@examples(40)
@given(
    st.sampled_from(FABRICS), st.booleans(), st.lists(st.integers(1, 9000), min_size=1, max_size=8)
)
def test_every_pair_and_size_as_by_recursion(fabric: str, longest: bool, sizes: list[int]) -> None:
    arrays = fabric_arrays(parse_fabric(fabric))
    pairs = [(a, b) for a in range(arrays.hosts) for b in range(arrays.hosts) if a != b]
    src, dst = np.array(pairs).T
    size = np.resize(np.array(sizes), len(pairs))
    ways = Ways(arrays)
    found = (ways.slowest if longest else ways.fastest)(src, dst, size)
    assert found.tolist() == [
        plain(arrays, a, b, int(n), longest) for (a, b), n in zip(pairs, size, strict=True)
    ]


def test_any_link_is_never_slower_than_the_routes() -> None:
    fabric = parse_fabric("fat-tree:k=4,rate=800G,delay=20ns,slow=leaf1-spine1:1G+leaf1-spine2:1G")
    arrays = fabric_arrays(fabric)
    src, dst = np.full(15, 0), np.arange(1, 16)
    size = np.full(15, 4160)
    routed = Ways(arrays).fastest(src, dst, size)
    free = Ways(by_any_link(arrays, fabric.links.source)).fastest(src, dst, size)
    assert (free <= routed).all() and (free > 0).all()
