"""The IP addresses of this host."""

from __future__ import annotations

import re
from ipaddress import IPv6Address

_LOCAL = re.compile(r"\|-- (\d+\.\d+\.\d+\.\d+)\n +/32 host LOCAL")


def local_addresses(proc: str = "/proc") -> set[str]:
    """IPv4 and IPv6 addresses of the network namespace of the calling thread, as text.

    Read from the routing tables in proc; empty when those cannot be read.
    """
    routes = _read(f"{proc}/thread-self/net/fib_trie")
    found = set(_LOCAL.findall(routes))
    for line in _read(f"{proc}/thread-self/net/if_inet6").splitlines():
        try:
            found.add(str(IPv6Address(bytes.fromhex(line.split()[0]))))
        except (ValueError, IndexError):
            continue
    return found


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
