"""Hosts and ports of SSH servers."""

from __future__ import annotations

import pytest

from rocescope.discovery.remote.place import host_and_port


@pytest.mark.parametrize(
    ("place", "host", "port"),
    [
        ("leaf1", "leaf1", None),
        ("leaf1:2222", "leaf1", 2222),
        ("[fd00::1]:2222", "fd00::1", 2222),
        ("fd00::1", "fd00::1", None),
        ("[fd00::1]", "fd00::1", None),
    ],
)
def test_hosts_and_ports(place, host, port):
    assert host_and_port(place) == (host, port)


@pytest.mark.parametrize("port", ["0", "65536", "99999", "9" * 5000])
def test_ports_that_do_not_exist(port):
    with pytest.raises(ValueError, match=r"the port \d{1,9} is not 1 to 65535"):
        host_and_port(f"leaf1:{port}")
