"""The partition of every packet: a hash of its unordered pair of hosts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from ipaddress import IPv4Address, ip_address

import numpy as np

from ..analyzer.wire.packets import I64, U32


class Partitions:
    """Partitions by host pair; the same for every capture that numbers its addresses."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._hashes = np.zeros(0, np.uint64)

    def see(self, addresses: Sequence[str]) -> None:
        """Learn the addresses that were added."""
        new = [_hash_of(address) for address in addresses[len(self._hashes) :]]
        self._hashes = np.concatenate([self._hashes, np.array(new, np.uint64)])

    def of(self, src: U32, dst: U32) -> I64:
        """int64[rows]: the partition of pairs of address numbers."""
        mixed = self._hashes[src] + self._hashes[dst]  # modulo 2^64, the same in both directions
        mixed ^= mixed >> np.uint64(31)
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        partitions: I64 = (mixed % np.uint64(self.count)).astype(np.int64)
        return partitions


def _hash_of(address: str) -> int:
    """64 bits of a digest; an IPv4 address and its RoCE GID are one endpoint."""
    parsed = ip_address(address)
    value = int(parsed) | (0xFFFF << 32 if isinstance(parsed, IPv4Address) else 0)
    digest = hashlib.blake2b(value.to_bytes(16, "big"), digest_size=8).digest()
    return int.from_bytes(digest, "big")
