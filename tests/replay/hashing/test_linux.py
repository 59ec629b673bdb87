"""SipHash-2-4 against the reference vectors, through the plain twin."""

from __future__ import annotations

import gzip
import json
import re
from ipaddress import ip_address

import dpkt
import numpy as np
import pytest
from hash_keys import SEEDS as LINUX_SEEDS
from hash_keys import some_keys
from hypothesis import given
from hypothesis import strategies as st
from siphash_twin import siphash24

from rocescope.analyzer.errors import UsageError
from rocescope.replay.hashing import linux as siphash
from rocescope.replay.hashing.keys import packet_keys
from rocescope.replay.hashing.models import bind
from rocescope.replay.hashing.settings import HashSettings, equal_cost

# SipHash-2-4 against the reference vectors, through the plain twin.

REFERENCE_KEY = (0x0706050403020100, 0x0F0E0D0C0B0A0908)

# vectors.h of the reference implementation, by length of the message 00 01 02 ...
REFERENCE = {
    0: 0x726FDB47DD0E0E31,
    1: 0x74F839C593DC67FD,
    8: 0x93F5F5799A932462,
    15: 0xA129CA6149BE45E5,
    16: 0x3F2ACC7F57C29BDB,
    48: 0xE612A3CB9ECBA951,
    63: 0x958A324CEB064572,
}


@pytest.mark.parametrize("length", REFERENCE)
def test_the_twin_gives_the_reference_vectors(length):
    assert siphash24(bytes(range(length)), *REFERENCE_KEY) == REFERENCE[length]


def words_of(message: bytes) -> np.ndarray:
    return np.frombuffer(message, "<u8").astype(np.uint64)


def test_steps_give_the_reference_vector_of_48_bytes():
    k0, k1 = (np.uint64(k) for k in REFERENCE_KEY)
    start = siphash.seeded(np.uint64(0))
    state = (start[0] ^ k0, start[1] ^ k1, start[2] ^ k0, start[3] ^ k1)
    words = words_of(bytes(range(48)))
    for word in words[:3]:
        state = siphash.compress(tuple(np.uint64(v) for v in state), word)  # type: ignore[arg-type]
    out = np.empty((1, 1), np.uint32)
    siphash.hash_all(np.array([state], np.uint64), words[3:, None].copy(), out)
    assert out[0, 0] == REFERENCE[48] & 0xFFFFFFFF


SEEDS = st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=3)


@given(SEEDS, st.integers(0, (1 << 64) - 1), st.sampled_from([3, 6]), st.data())
def test_kernels_are_the_twin(seeds, first, words, data):
    rest = data.draw(st.binary(min_size=8 * words, max_size=8 * words))
    message = first.to_bytes(8, "little") + bytes(16) + rest
    keys = [(seed << 32) | seed for seed in seeds]
    expected = [[siphash24(message, key, key) & 0xFFFFFFFF] for key in keys]
    seed_array = np.array(seeds, np.uint64)
    states = np.empty((len(seeds), 4), np.uint64)
    siphash.prefix_states(seed_array, np.uint64(first), states)
    column = words_of(rest)[:, None].copy()
    out = np.empty((len(seeds), 1), np.uint32)
    siphash.hash_all(states, column, out)
    assert out.tolist() == expected
    which = np.arange(len(seeds), dtype=np.int32)[::-1].reshape(-1, 1).copy()
    siphash.hash_at(states, which, column, out)
    assert out.tolist() == expected[::-1]
    siphash.hash_each(seed_array, which, np.array([first], np.uint64), column, out)
    assert out.tolist() == expected[::-1]


# Linux's multipath hash against a plain twin, and against captures of a real fabric.

FIELDS = {"src": 1, "dst": 2, "protocol": 4, "label": 8, "sport": 16, "dport": 32}


def jhash_2words(a: int) -> int:
    """Linux jhash_2words(a, 0, 0), in plain integers."""
    state = [0xDEADBEEF + 8 + a, 0xDEADBEEF + 8, 0xDEADBEEF + 8]
    for step, k in enumerate((14, 11, 25, 16, 4, 14, 24)):
        x, y = (2 + step) % 3, (1 + step) % 3
        word = state[y] % (1 << 32)
        state[x] = (state[x] ^ word) - (word << k | word >> (32 - k)) % (1 << 32)
        state[x] %= 1 << 32
    return state[2]


def multipath_hash(keys, i: int, policy: int, mask: int, seed: int) -> int:
    """fib_multipath_hash of one forwarded packet, from the bytes of its key."""
    six = bool(keys.ipv6[i])
    if policy == 1:
        mask = 0x37
    elif policy in (0, 2):
        mask = 0x0F if six else 0x03
    if not mask:
        h = 0
    else:
        size = 16 if six else 4

        def chosen(name: str, value: bytes) -> bytes:
            return value if mask & FIELDS[name] else bytes(len(value))

        src = chosen("src", keys.src[i, 16 - size :].tobytes())
        dst = chosen("dst", keys.dst[i, 16 - size :].tobytes())
        backwards = (lambda b: b) if six else (lambda b: b[::-1])
        if backwards(dst) < backwards(src):
            src, dst = dst, src
        sport = chosen("sport", int(keys.sport[i]).to_bytes(2, "big"))
        dport = chosen("dport", int(keys.dport[i]).to_bytes(2, "big"))
        if dport[::-1] < sport[::-1]:
            sport, dport = dport, sport
        order = "big" if policy == 0 else "little"
        label = chosen("label", int(keys.flow_label[i] if six else 0).to_bytes(4, order))
        protocol = chosen("protocol", bytes([keys.protocol[i]]))
        key = bytes(2) + protocol + bytes(1) + label + bytes(16 + 4) + sport + dport + bytes(4)
        key += src + dst + bytes(4)
        assert len(key) == (72 if six else 48)
        h = siphash24(key, seed << 32 | seed, seed << 32 | seed) % (1 << 32) or 1
    return (jhash_2words(h or 1) if policy == 3 else h) >> 1


@given(
    LINUX_SEEDS,
    LINUX_SEEDS,
    st.sampled_from([0, 4, 6]),
    st.integers(0, 3),
    st.integers(0, 63),
    st.integers(0, 9),
)
def test_every_policy_is_the_twin(seed, other, family, policy, fields, number):
    keys = some_keys(12, family, number)
    settings = HashSettings("linux", extra={"policy": policy, "fields": fields})
    bound = bind(keys, settings)
    expected = [
        [multipath_hash(keys, i, policy, fields, s) for i in range(12)] for s in (seed, other)
    ]
    assert bound.values([seed, other]).tolist() == expected
    which, found = (np.arange(12)[None] % 2).astype(np.int32), np.empty((1, 12), np.uint32)
    bound.fill_at(np.array([seed, other], np.uint64), which, found)
    assert found.tolist() == [[expected[i % 2][i] for i in range(12)]]


def test_both_directions_hash_alike():
    keys = some_keys(200, 0)
    back = keys._replace(src=keys.dst, dst=keys.src, sport=keys.dport, dport=keys.sport)
    settings = HashSettings()
    np.testing.assert_array_equal(
        bind(keys, settings).values([1, 2]), bind(back, settings).values([1, 2])
    )


@pytest.mark.parametrize("extra", [{"policy": 4}, {"policy": "x"}, {"fields": 64}, {"seed": 1}])
def test_settings_the_kernel_does_not_have(extra):
    with pytest.raises(UsageError):
        bind(some_keys(1), HashSettings(extra={"policy": 3, **extra}))


@pytest.mark.thorough
def test_captures_of_a_real_fabric(data):
    """31,200 packets of 48 queue pairs, both ways: every one is on the predicted uplink."""
    folder = data / "leafspine" / "r01_clean_write"
    leaf = json.loads((folder / "topology.json").read_text())["sysctl"]["leaf1"]
    seed = int(re.search(r"hash_seed = (\d+)", " ".join(leaf))[1])
    spines = range(1, 5)
    placed = [
        (*flow, spine - 1) for spine in spines for flow in flows(folder / f"leaf1-spine{spine}")
    ]
    src, dst, sport, dport, qp, spine = zip(*placed, strict=True)
    assert len(placed) == 31_200
    assert len(set(placed)) == len({flow[:5] for flow in placed}) == 96
    keys = packet_keys(src, dst, sport, dport, dest_qp=qp)
    predicted = bind(keys, HashSettings()).choose(seed, equal_cost(4))[0]
    assert predicted.tolist() == list(spine)


def flows(name):
    """(src, dst, sport, dport, destination QP) of every RoCE packet of a capture."""
    with gzip.open(f"{name}.pcap.gz") as file:
        for _, frame in dpkt.pcap.Reader(file):
            ip = dpkt.ethernet.Ethernet(frame).data
            if isinstance(ip, dpkt.ip.IP) and isinstance(ip.data, dpkt.udp.UDP):
                udp = ip.data
                if udp.dport == 4791:
                    qp = int.from_bytes(udp.data[5:8], "big")
                    yield str(ip_address(ip.src)), str(ip_address(ip.dst)), udp.sport, 4791, qp
