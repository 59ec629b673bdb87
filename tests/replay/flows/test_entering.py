"""Where units enter a fabric."""

from __future__ import annotations

import replay_traffic

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.entering import enter


def test_hosts_with_several_ports_use_them_in_turn() -> None:
    fabric = parse_fabric("multi-plane:planes=2,leaves=2,spines=2,hosts=3")
    traffic = replay_traffic.traffic(fabric, [0, 0, 0, 1, 0], [3, 4, 5, 3, 3])
    switch = enter(traffic, fabric).switch
    planes = fabric.nodes.plane[switch].tolist()
    assert planes == [0, 1, 0, 0, 1]


def test_hosts_with_one_port_enter_there_or_nowhere() -> None:
    fabric = parse_fabric("leaf-spine:leaves=2,spines=1,hosts=2,down=leaf2-spine1")
    traffic = replay_traffic.traffic(fabric, [0, 1, 0, 2], [1, 0, 2, 3])
    start = enter(traffic, fabric)
    assert (start.access >= 0).tolist() == [True, True, False, True]
    assert start.switch[start.access >= 0].tolist() == [0, 0, 1]
