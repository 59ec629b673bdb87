"""What all comparisons share: flows between hosts of the fabric, and the records of both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from replay_traffic import traffic

from rocescope.analyzer.errors import UsageError
from rocescope.replay.compare.flows import fabric_summary, mapped, traffic_summary
from rocescope.replay.fabrics.parse import parse_fabric

CLOS = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2")
OFFERED = traffic(CLOS, [0, 1, 0], [2, 3, 3])


def test_flows_of_other_hosts_are_left_out_and_named() -> None:
    outside = replace(
        OFFERED,
        dst_host=np.array([2, -1, 3], np.int32),
        unmapped=tuple(f"192.0.2.{i}" for i in range(1, 11)),
        warnings=("first",),
    )
    inside, (first, left_out) = mapped(outside, CLOS)
    assert first == "first" and inside.dst_host.tolist() == [2, 3]
    assert "1 of 3 flows" in left_out and "192.0.2.8, ..." in left_out
    assert mapped(OFFERED, CLOS) == (OFFERED, [])


def test_traffic_without_a_host_of_the_fabric_is_refused() -> None:
    nobody = replace(OFFERED, src_host=np.full(3, -1, np.int32), unmapped=("192.0.2.1",))
    with pytest.raises(UsageError, match=r"no flow runs between hosts .* 192\.0\.2\.1: use --map"):
        mapped(nobody, CLOS)


def test_the_records_count_flows_hosts_and_links() -> None:
    told = traffic_summary(OFFERED, ["a.pcap"])
    assert (told.flows, told.units, told.hosts, told.sources) == (3, 3, 4, ["a.pcap"])
    assert (told.packets, told.wire_bytes) == (OFFERED.packets.sum(), OFFERED.wire_bytes.sum())
    down = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2,down=leaf1-spine1")
    links = fabric_summary(CLOS).links
    assert (fabric_summary(down).links, fabric_summary(down).links_down) == (links - 2, 2)
    assert (fabric_summary(CLOS).hosts, fabric_summary(CLOS).switches) == (4, 4)
