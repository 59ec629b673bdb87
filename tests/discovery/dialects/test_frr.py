"""FRR's view of the routes."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from answers import recorded

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.dialects.frr import installed_of


def test_frr_calls_members_installed_that_the_kernel_has_lost(tmp_path):
    folder = recorded(tmp_path) / "flapped"
    found = installed_of(folder / "leaf1.frr-route.json")
    assert found[ip_network("10.2.3.0/24")] == {"swp1", "swp2", "swp3", "swp4"}
    assert "swp3" not in (folder / "leaf1.route.json").read_text()


def test_no_file_no_routes(tmp_path):
    assert installed_of(tmp_path / "none") == {}
    (tmp_path / "empty").touch()
    assert installed_of(tmp_path / "empty") == {}


@pytest.mark.parametrize("content", [b"[]", b'{"10.0.0.0/99": []}', b'{"10.0.0.0/8": 1}', b"{"])
def test_other_content_is_named(content, tmp_path):
    file = tmp_path / "r.frr-route.json"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"r.frr-route.json: not the output of show ip route"):
        installed_of(file)
