"""Linux routers and hosts: iproute2, sysctl and lldpd. All but lldpctl run unprivileged."""

from __future__ import annotations

from .dialect import Dialect, Question

LINUX = Dialect(
    "linux",
    (
        Question("route.json", "ip -j route", "IPv4 routes"),
        Question("route6.json", "ip -6 -j route", "IPv6 routes"),
        Question("nexthop.json", "ip -j nexthop", "weights of next-hop groups"),
        Question("bucket.json", "ip -j nexthop bucket", "buckets of resilient groups"),
        Question("addr.json", "ip -j -d addr", "ports, MAC addresses, link-local addresses"),
        Question("neigh.json", "ip -j neigh", "neighbour MAC addresses"),
        Question("sysctl", "sysctl -a", "hash policy and seed"),
        Question("lldp.json", "lldpctl -f json0", "LLDP neighbours"),
    ),
)
