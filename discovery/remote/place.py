"""Host and port of an SSH server, as people write them."""

from __future__ import annotations


def host_and_port(place: str) -> tuple[str, int | None]:
    """`host`, `host:port` or `[address]:port`; a plain IPv6 address has no port.

    ValueError for a port that does not exist.
    """
    host, colon, port = place.rpartition(":")
    if colon and port.isdecimal() and (":" not in host or host.startswith("[")):
        if len(port) > 5 or not 1 <= int(port) <= 65535:
            raise ValueError(f"the port {port[:9]} is not 1 to 65535")
        return host.strip("[]"), int(port)
    return place.strip("[]"), None
