"""131,072 NICs in eight planes: results that need no packet simulation.

    python benchmarks/reproductions/large_fabric.py

Builds the fabric of arXiv 2605.04333 (512-port switches, 8 x 100 Gb/s per NIC) and, to compare, a
fat tree of 64-port switches, and sets what is counted beside the figures of the paper. *derived*:
follows from them by arithmetic, without being printed there.
"""

from __future__ import annotations

import re
import resource
import sys
import time
from typing import NamedTuple

from bands import Bands

from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.checks import BlastRadius, blast_radii, paths_between, table_sizes

PLANES = "multi-plane:planes=8,leaves=512,spines=256,hosts=256,rate=100G"
FOUR = "multi-plane:planes=4,leaves=256,spines=128,hosts=128,rate=200G"
THREE_TIERS = "fat-tree:k=64,rate=800G"


class Row(NamedTuple):
    """One figure."""

    figure: str
    theirs: str
    source: str
    """paper or derived."""
    ours: str


def switches_of(fabric: Fabric, tier: int) -> int:
    return int((fabric.nodes.tier[: fabric.switches] == tier).sum())


def by_kind(fabric: Fabric, names: str = "each") -> dict[str, BlastRadius]:
    return {one.kind: one for one in blast_radii(fabric, names)}


def cable_ends_per_host(fabric: Fabric) -> float:
    """Ends of cables (optics) per host, in units of all its ports together."""
    return len(fabric.links.source) / fabric.hosts / fabric.ports


def rows() -> list[Row]:
    large = parse_fabric(PLANES)
    lost, (leaf, spine) = by_kind(large), table_sizes(large)
    far, near = paths_between(large, 0, large.hosts - 1), paths_between(large, 0, 1)
    port, link = lost["host-leaf link"], lost["leaf-spine link"]
    found = [
        Row("NICs", "131,072", "paper", f"{large.hosts:,}"),
        Row("T0 switches", "4,096", "paper", f"{switches_of(large, 1):,}"),
        Row("T1 switches", "2,048", "paper", f"{switches_of(large, 2):,}"),
        Row("paths between NICs of different T0s", "2,048", "derived", f"{far.paths:,}"),
        Row("paths between NICs of one T0", "8", "derived", f"{near.paths:,}"),
        Row("switches on the longest path", "3", "paper", str((far.longest_links or 0) - 1)),
        Row(
            "NIC port lost: of its capacity", "12.5 %", "paper", f"{port.host_capacity_percent:g} %"
        ),
        Row(
            "T0-T1 link lost: of the T0's uplinks",
            "0.4 %",
            "paper",
            f"{link.uplink_capacity_percent:.2f} %",
        ),
        Row("T0-T1 link lost: paths of a pair", "1 of 2,048", "derived", left(link)),
        Row(
            "T1 lost: NICs below; paths of a pair",
            "all; 1 of 2,048",
            "derived",
            below(lost["spine"]),
        ),
        Row(
            "T0 lost: NICs below; paths of a pair",
            "256; 256 of 2,048",
            "derived",
            below(lost["leaf"]),
        ),
        Row(
            "plane lost: NICs below; paths of a pair",
            "all; 256 of 2,048",
            "derived",
            below(lost["plane"]),
        ),
        Row(
            "NICs cut off by any of these",
            "0",
            "derived",
            str(sum(one.hosts_cut_off for one in lost.values())),
        ),
        Row("static SRv6 entries of a T0", "513", "derived", str(leaf.static_srv6)),
        Row("static SRv6 entries of a T1", "513", "derived", str(spine.static_srv6)),
    ]
    switches, ends = large.switches / large.hosts, cable_ends_per_host(large)
    del large
    four = parse_fabric(FOUR)
    port = by_kind(four, "host1-plane1.leaf1")["host-leaf link"]
    found += [
        Row("NICs with 4 ports of 200 Gb/s", "32,768", "derived", f"{four.hosts:,}"),
        Row(
            "... NIC port lost: of its capacity",
            "25 %",
            "paper",
            f"{port.host_capacity_percent:g} %",
        ),
    ]
    tree = parse_fabric(THREE_TIERS)
    link = by_kind(tree, "leaf1-spine1")["leaf-spine link"]
    longest = paths_between(tree, 0, tree.hosts - 1).longest_links or 0
    return found + [
        Row("fat tree of 64 x 800 Gb/s: longest path", "5", "paper", str(longest - 1)),
        Row(
            "... leaf-spine link lost: of the leaf's uplinks",
            "3 %",
            "paper",
            f"{link.uplink_capacity_percent:.2f} %",
        ),
        Row(
            "switches per NIC, planes to fat tree",
            "about 60 %",
            "paper",
            f"{100 * switches / (tree.switches / tree.hosts):.0f} %",
        ),
        Row(
            "optics per NIC, planes to fat tree",
            "about 67 %",
            "paper",
            f"{100 * ends / cable_ends_per_host(tree):.0f} %",
        ),
    ]


def numbers(text: str) -> list[float]:
    return [float(n.replace(",", "")) for n in re.findall(r"\d[\d,]*\.?\d*", text)]


def check(bands: Bands, row: Row) -> None:
    """Rounded as they are, the published figures are met within 5 percent, and 0 exactly."""
    theirs = numbers(row.theirs)
    ours = numbers(row.ours)[-len(theirs) :]
    for one, other in zip(theirs, ours, strict=True):
        bands.within(row.figure, other, 0.95 * one, 1.05 * one)


def left(one: BlastRadius) -> str:
    return f"{one.paths_before - one.paths_after:,} of {one.paths_before:,}"


def below(one: BlastRadius) -> str:
    return f"{one.hosts_below:,}; {left(one)}"


def main() -> None:
    begin, busy = time.perf_counter(), time.process_time()
    print(f"{'figure':48} {'published':>18} {'':7} {'counted':>22}")
    bands = Bands()
    for row in rows():
        check(bands, row)
        print(f"{row.figure:48} {row.theirs:>18} {row.source:7} {row.ours:>22}")
    scale = 1 << 20 if sys.platform == "darwin" else 1 << 10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale
    print(
        f"\nthree fabrics in {time.process_time() - busy:.0f} s of one core "
        f"({time.perf_counter() - begin:.0f} s by the clock), {peak:,.0f} MiB at most"
    )
    bands.end()


if __name__ == "__main__":
    main()
