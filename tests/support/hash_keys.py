"""Random keys for the tests of hash models."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from rocescope.replay.hashing.keys import KeyBytes, PacketKeys, packet_keys

SEEDS = st.integers(0, (1 << 32) - 1)
ROWS = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=6)


def rows(texts: list[bytes]) -> KeyBytes:
    """Byte strings as hash functions read them."""
    data = np.zeros((len(texts), max(map(len, texts))), np.uint8)
    for i, text in enumerate(texts):
        data[i, : len(text)] = list(text)
    return KeyBytes(data, np.array([len(text) for text in texts]))


def some_keys(count: int, family: int = 4, seed: int = 0) -> PacketKeys:
    """Keys with random fields; family 0 mixes IPv4 and IPv6."""
    random = np.random.default_rng([seed, family])
    ipv6 = random.random(count) < 0.5 if family == 0 else np.full(count, family == 6)

    def hosts() -> list[str]:
        numbers = random.integers(0, 256, (count, 3)).tolist()
        pattern = {False: "10.{}.{}.{}", True: "fd00:{:x}::{:x}:{:x}"}
        return [pattern[six].format(*n) for six, n in zip(ipv6.tolist(), numbers, strict=True)]

    return packet_keys(
        hosts(),
        hosts(),
        random.integers(0, 65536, count),
        dport=random.choice([4791, 80, 65535], count),
        flow_label=np.where(ipv6, random.integers(0, 1 << 20, count), 0),
        dest_qp=random.integers(0, 1 << 24, count),
        protocol=random.choice([17, 6], count),
    )
