"""Addresses of this host, from the kernel's tables and from made ones."""

from __future__ import annotations

import socket

from rocescope.probes.owners.addresses import local_addresses

FIB = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 10.0.0.0
        /24 link UNICAST
     |-- 10.0.0.7
        /32 host LOCAL
     |-- 10.0.0.255
        /32 link BROADCAST
Local:
     |-- 127.0.0.1
        /32 host LOCAL
"""


def test_made_tables(tmp_path):
    folder = tmp_path / "thread-self" / "net"
    folder.mkdir(parents=True)
    (folder / "fib_trie").write_text(FIB)
    (folder / "if_inet6").write_text(
        "fd000000000000000000000000000001 02 40 00 80     eth0\nodd\n\n"
    )
    assert local_addresses(str(tmp_path)) == {"10.0.0.7", "127.0.0.1", "fd00::1"}


def test_no_tables(tmp_path):
    assert local_addresses(str(tmp_path)) == set()


def test_addresses_of_this_host_can_be_bound():
    found = local_addresses()
    assert "127.0.0.1" in found
    for address in found:
        if ":" not in address:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
                bound.bind((address, 0))
