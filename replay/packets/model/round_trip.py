"""Round trip and bandwidth-delay product of each flow, without queues."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int32s, Ints
from ....kernels.named import NamedTuple
from .arrays import FabricArrays
from .ways import Ways


class RoundTrips(NamedTuple):
    """What hosts know of the network before the first packet; F flows."""

    ps: Ints
    """int64[F]: from the start of a full packet to its ACK; at least 1."""
    bits_per_second: Ints
    """int64[F]: rate of all ports of the sender together."""
    hops: Ints
    """int64[F]: links of the shortest path."""


def round_trips(
    src: Int32s, dst: Int32s, arrays: FabricArrays, packet_bytes: int, ack_bytes: int = 64
) -> RoundTrips:
    """Round trips by the slowest of the equal-cost paths, so that propagation never looks like a
    queue; 1 ps for pairs without a path."""
    pairs, of_pair = np.unique(np.stack([src, dst]), axis=1, return_inverse=True)
    there, back = pairs
    ways = Ways(arrays)
    size = np.full(len(there), packet_bytes), np.full(len(there), ack_bytes)
    forth, answer = ways.slowest(there, back, size[0]), ways.slowest(back, there, size[1])
    whole = np.where((forth >= 0) & (answer >= 0), forth + answer, 1)
    each = arrays._replace(
        ps_per_byte_q20=np.zeros_like(arrays.ps_per_byte_q20),
        delay_ps=np.ones_like(arrays.delay_ps),
    )
    hops = np.maximum(1, Ways(each).fastest(there, back, size[0]))
    access = arrays.access[there]
    per_byte = np.where(access >= 0, arrays.ps_per_byte_q20[access], np.iinfo(np.int64).max)
    rate = np.rint((8e12 * (1 << 20) / per_byte).sum(1)).astype(np.int64)
    of_pair = of_pair.reshape(-1)
    return RoundTrips(whole[of_pair], rate[of_pair], hops[of_pair])


def bdp_packets(trips: RoundTrips, packet_bytes: int) -> Ints:
    """int64[F]: packets in flight that fill the round trip, at least 1."""
    in_flight = trips.ps * (trips.bits_per_second / 8e12 / packet_bytes)
    return np.maximum(1, in_flight.astype(np.int64))
