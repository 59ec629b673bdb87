"""Hand-made traffic and a plain walk of it, for the tests of the replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.hashing.keys import packet_keys
from rocescope.replay.traffic.traffic import Traffic, Windows


def traffic(
    fabric: Fabric,
    src: Sequence[int],
    dst: Sequence[int],
    wire_bytes: int | Sequence[int] = 1000,
    *,
    seed: int = 1,
    windows: Sequence[tuple[int, int, int]] | None = None,
) -> Traffic:
    """One unit per pair of hosts, with random ports and QPNs; windows: (unit, window, bytes)."""
    n, rng = len(src), np.random.default_rng(seed)
    name = [str(fabric.address_of(i)) for i in range(fabric.hosts)]
    table = None
    if windows is not None:
        unit, window, amount = np.array(sorted(windows), np.int64).reshape(-1, 3).T
        table = Windows(1_000_000, 0, unit.astype(np.int32), window.astype(np.int32), amount)
    zeros = np.zeros(n, np.int64)
    return Traffic(
        packet_keys(
            [name[s] for s in src],
            [name[d] for d in dst],
            rng.integers(49152, 65536, n),
            dest_qp=rng.integers(0, 1 << 24, n),
        ),
        np.array(src, np.int32),
        np.array(dst, np.int32),
        np.arange(n, dtype=np.int32),
        zeros + 10,
        np.broadcast_to(np.array(wire_bytes, np.int64), n).copy(),
        zeros,
        zeros,
        table,
    )


def random_traffic(fabric: Fabric, flows: int, seed: int = 1) -> Traffic:
    """Flows between random different hosts, of random sizes."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, fabric.hosts, flows)
    dst = (src + rng.integers(1, fabric.hosts, flows)) % fabric.hosts
    return traffic(fabric, src.tolist(), dst.tolist(), rng.integers(1, 10_000, flows).tolist())


def plain_walk(
    fabric: Fabric,
    access: int,
    destination: int,
    choose: Callable[[int, int, int], int],
) -> list[int]:
    """The links of one unit, by the words of fabric.py; choose(switch, came by link, members)."""
    links = [access]
    while True:
        node = int(fabric.links.target[links[-1]])
        exits = fabric.exit_link_at(
            np.array([node], np.int32), np.array([destination], np.int32)
        ).tolist()
        if exits[0] >= 0:
            return [*links, exits[0]]
        members, _ = fabric.group(node, int(fabric.attachments.edge[destination]))
        links.append(int(members[choose(node, links[-1], len(members))]))
