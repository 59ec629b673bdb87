"""Rails: the n-th NIC of every server in a pod is at the n-th leaf of that pod."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.kinds.rail import rail


def test_nics_are_on_their_rail():
    fabric = rail({"rails": "3", "servers": "2", "pods": "2", "spines": "2"})
    names = fabric.nodes.names
    places = {
        names[fabric.switches + host]: names[fabric.attachments.switch[host, 0]]
        for host in range(fabric.hosts)
    }
    assert places == {
        f"server{server}.nic{nic}": f"pod{(server + 1) // 2}.rail{nic}"
        for server in range(1, 5)
        for nic in range(1, 4)
    }


def test_rails_alone_do_not_meet():
    fabric = rail({"rails": "2", "servers": "2", "spines": "0"})
    assert fabric.switches == 2 and fabric.nodes.tier.tolist() == [1, 1, 0, 0, 0, 0]
    assert fabric.layers and not any("spine" in name for name in fabric.nodes.names)
    with pytest.raises(UsageError, match="with spines=0 the pods are not connected"):
        rail({"spines": "0", "pods": "2"})
