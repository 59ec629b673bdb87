"""Round trip and bandwidth-delay product of a fabric without queues."""

from __future__ import annotations

import numpy as np

from ...fabrics.fabric import Fabric
from .model import PS


def round_trip_ps(fabric: Fabric, packet_bytes: int, ack_bytes: int = 64) -> int:
    """Time from a packet to its ACK between the most distant hosts, store and forward."""
    hops = 2 * max(1, int(fabric.nodes.tier.max(initial=1)))
    rate = float(np.median(fabric.links.rate_bits_per_second))
    service = (packet_bytes + ack_bytes) * 8e12 / rate
    return int(hops * (2 * PS * float(np.median(fabric.links.delay_ns)) + service))


def bdp_packets(fabric: Fabric, packet_bytes: int) -> int:
    """Packets that a NIC port sends in a round trip, at least 1."""
    access = fabric.attachments.access_link
    rate = float(fabric.links.rate_bits_per_second[access[access >= 0]].max(initial=1))
    return max(1, int(round_trip_ps(fabric, packet_bytes) * rate / 8e12 / packet_bytes))
