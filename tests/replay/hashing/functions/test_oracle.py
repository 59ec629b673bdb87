"""The random oracle is as even, and no more even, than chance."""

from __future__ import annotations

import hashlib
from math import comb

import numpy as np
from hash_keys import rows, some_keys

from rocescope.replay.hashing.functions.oracle import digests
from rocescope.replay.hashing.models import bind
from rocescope.replay.hashing.settings import HashSettings, equal_cost


def splitmix64(state: int) -> int:
    """One output of the published generator (Steele, Lea, Flood 2014)."""
    z = (state + 0x9E3779B97F4A7C15) % (1 << 64)
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % (1 << 64)
    z = (z ^ z >> 27) * 0x94D049BB133111EB % (1 << 64)
    return z ^ z >> 31


def test_finaliser_is_splitmix64():
    assert splitmix64(0) == 0xE220A8397B1DCDAF  # first output from state 0
    keys = some_keys(20)
    bound = bind(keys, HashSettings("random-oracle", "dport"))
    digest = int.from_bytes(
        hashlib.blake2b(int(keys.dport[3]).to_bytes(2, "big"), digest_size=8).digest(), "little"
    )
    assert bound.values([77])[0, 3] == splitmix64(digest ^ splitmix64(77)) >> 32


def test_different_keys_have_different_digests():
    assert len(np.unique(digests(rows([b"a", b"b", b"ab", b"a\0", b"a"])))) == 4


def test_flow_imbalance_is_that_of_chance():
    """E[FIM] of n flows on k links, in closed form (de Moivre): 2m C(n,m) p^m q^(n-m+1) / mu."""
    n, k, seeds = 64, 8, 20_000
    members = bind(some_keys(n), HashSettings("random-oracle")).choose(range(seeds), equal_cost(k))
    counts = np.stack([(members == link).sum(axis=1) for link in range(k)], axis=1)
    fim = 100 * np.abs(counts - n / k).mean(axis=1) / (n / k)
    m = n // k + 1
    expected = 100 * 2 * m * comb(n, m) * (1 / k) ** m * (1 - 1 / k) ** (n - m + 1) / (n / k)
    assert abs(fim.mean() - expected) < 4 * fim.std() / seeds**0.5
