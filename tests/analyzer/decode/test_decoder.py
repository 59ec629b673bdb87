"""The decoder as callers use it: batches, taps, options, the life of its tables."""

from __future__ import annotations

import itertools
import os
import random
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from batches import T0, batch, decode, decoder, read_pcap
from corpus import frame as frame_rows
from decode_twin import SIZES, Twin, headers_of
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.decode import control as pause
from rocescope.analyzer.decode import outcomes
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.decode.headers import HEADER_LENGTH, extension_headers, header_offset
from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.wire.packets import COLUMNS, LENGTH_MISMATCH
from rocescope.analyzer.wire.registry import Endpoints, Registry
from rocescope.analyzer.wire.taps import Tap, Taps

# The decoder as callers use it: batches, taps, options, the life of its tables.


def frame(
    psn: int = 0,
    *,
    sport: int = 0xC000,
    dport: int = 4791,
    source: int = 0x0A000001,
    payload: int = 64,
    opcode: int = 0x04,
    protocol: int = 17,
    ip_length: int | None = None,
    udp_length: int | None = None,
) -> bytes:
    """An Ethernet frame with one RC SEND ONLY."""
    bth = struct.pack(">BBHII", opcode, 0, 0xFFFF, 0x12, psn) + bytes(payload + 4)
    udp = struct.pack(">HHHH", sport, dport, udp_length or 8 + len(bth), 0) + bth
    total = ip_length or 20 + len(udp)
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, total, 1, 0, 64, protocol, 0, source, 0x0A0000FF)
    return bytes(12) + b"\x08\x00" + ip + udp


def test_batches_continue_frame_numbers_offsets_and_endpoints() -> None:
    dec = decoder()
    first = dec.decode(batch([frame(1), frame(2)], base_offset=100))
    second = dec.decode(
        batch([frame(3, source=7), frame(4)], first_frame_number=3, base_offset=5000)
    )
    assert first.psn.tolist() == [1, 2] and second.psn.tolist() == [3, 4]
    assert second.frame_number.tolist() == [3, 4]
    assert second.file_offset.tolist() == [5000, 5000 + len(frame())]
    assert (first.src.tolist(), second.src.tolist()) == ([0, 0], [2, 0])
    assert dec.counters.frames() == 4


def test_no_frames() -> None:
    assert len(decode([])) == 0


def test_tables_stay_as_they_are_while_somebody_holds_them() -> None:
    dec = decoder()
    tables = [dec.decode(batch([frame(i)] * 1000)) for i in range(20)]
    column = dec.decode(batch([frame(99)] * 1000)).psn
    for i in range(20):
        dec.decode(batch([frame(1000 + i)] * 1000))
    assert [set(t.psn.tolist()) for t in tables] == [{i} for i in range(20)]
    assert set(column.tolist()) == {99}


def test_memory_is_used_again() -> None:
    dec = decoder()
    places = {dec.decode(batch([frame()] * 1000)).time_ns.ctypes.data for _ in range(50)}
    assert len(places) <= 2


def test_only_the_destination_port_makes_a_packet_roce() -> None:
    dec = decoder()
    table = dec.decode(batch([frame(1, sport=69), frame(2, sport=4791, dport=5000)]))
    assert table.psn.tolist() == [1]
    assert dec.counters.contents() == [("RoCE", 1), ("UDP port 5000", 1)]
    more = decoder(udp_ports=(4791, 5000))
    assert more.decode(batch([frame(1), frame(2, dport=5000)])).udp_dport.tolist() == [4791, 5000]
    with pytest.raises(UsageError, match="70000 is not a UDP port"):
        decoder(udp_ports=(70000,))


def test_contents_of_a_capture_without_roce() -> None:
    arp = bytes(12) + b"\x08\x06" + bytes(28)
    dec = decoder()
    frames = [arp, arp, arp, frame(protocol=6), frame(protocol=6), frame(dport=4789), b"short"]
    assert len(dec.decode(batch(frames))) == 0
    assert dec.counters.contents() == [
        ("ARP", 3),
        ("TCP", 2),
        ("UDP port 4789", 1),
        ("truncated in the link header", 1),
    ]


def test_counts_per_tap() -> None:
    dec = decoder(taps=3)
    dec.decode(batch([frame(), frame(opcode=0xC0), frame()[:50]], tap=[0, 2, 2]))
    assert [dec.counters.frames(tap) for tap in range(3)] == [1, 0, 2]
    assert [dec.counters.roce_packets(tap) for tap in range(3)] == [1, 0, 1]
    assert [dec.counters.noted(outcomes.UNKNOWN_OPCODES, tap) for tap in range(3)] == [0, 0, 1]
    assert dec.counters.undecodable(2) == {"truncated before the end of the BTH": 1}
    assert sum(dec.counters.undecodable().values()) == 1


def test_taps_may_be_added_between_batches() -> None:
    taps = Taps()
    taps.add(Tap("a", 1))
    dec = Decoder(Registry(taps=taps))
    dec.decode(batch([frame()]))
    with pytest.raises(ValueError, match="tap"):
        dec.decode(batch([frame()], tap=1))
    taps.add(Tap("b", 1))
    dec.decode(batch([frame()], tap=1))
    assert [dec.counters.frames(tap) for tap in range(2)] == [1, 1]


def test_more_addresses_than_the_table_has_room_for() -> None:
    registry = Registry(Endpoints(capacity=4))
    registry.taps.add(Tap("a", 1))
    n = 5000
    table = Decoder(registry).decode(batch([frame(i, source=0x0B000000 + i) for i in range(n)]))
    assert table.psn.tolist() == list(range(n))
    assert table.src.tolist() == [0, *range(2, n + 1)]
    assert table.dst.tolist() == [1] * n
    assert registry.endpoints.text(n) == "11.0.19.135"


def test_addresses_beyond_the_limit_take_no_memory() -> None:
    registry = Registry(Endpoints(capacity=4, most=1000))
    registry.taps.add(Tap("a", 1))
    decoder, seen = Decoder(registry), []
    for first in range(0, 20_000, 5000):
        frames = [frame(i, source=0x0B000000 + i) for i in range(first, first + 5000)]
        seen += decoder.decode(batch(frames)).src.tolist()
    assert seen == [0, *range(2, 1000), *[999] * 19_001]
    assert len(registry.endpoints) == 1000
    assert len(registry.endpoints.arrays.high) == 1024
    known = decoder.decode(batch([frame(0, source=0x0B000000 + 5)]))
    assert known.src.tolist() == [6]


def test_snapped_frames_take_lengths_from_the_ip_header() -> None:
    whole = frame(7, payload=1024)
    table = decode([whole[:58]], wire=[len(whole)])
    assert table.payload_bytes.tolist() == [1024]
    assert table.wire_bytes.tolist() == [len(whole)]
    assert table.captured_bytes.tolist() == [58]
    assert not (table.decode_flags & LENGTH_MISMATCH).any()


def test_a_mirror_that_tells_the_cut_length_is_found_out() -> None:
    whole = frame(7, payload=1024)
    table = decode([whole[:58]])
    assert table.wire_bytes.tolist() == [len(whole)]
    assert table.payload_bytes.tolist() == [1024]
    assert (table.decode_flags & LENGTH_MISMATCH).all()


def test_ethernet_padding_is_no_payload() -> None:
    table = decode([frame(payload=0).ljust(60, b"\0")])
    assert table.payload_bytes.tolist() == [0]
    assert table.wire_bytes.tolist() == [60]
    assert not (table.decode_flags & LENGTH_MISMATCH).any()


def test_lengths_that_contradict() -> None:
    frames = [
        frame(udp_length=50),  # less than IP says: the smaller one holds
        frame(udp_length=5000),
        frame(payload=0, opcode=0x06),  # no room for the RETH this opcode has
    ]
    table = decode(frames)
    assert table.payload_bytes.tolist() == [50 - 8 - 12 - 4, 64, 0]
    assert (table.decode_flags & LENGTH_MISMATCH != 0).tolist() == [True] * 3
    dec = decoder()
    dec.decode(batch([*frames, frame(udp_length=19), frame(ip_length=39), frame(ip_length=19)]))
    assert dec.counters.noted(outcomes.LENGTH_MISMATCHES) == 3
    assert dec.counters.undecodable() == {
        "IP or UDP length too short for a BTH": 2,
        "bad IP header": 1,
    }


def test_columns_lie_apart_and_are_aligned() -> None:
    table = decode([frame()] * 777)
    spans = []
    for _, array in table.columns():
        assert array.ctypes.data % array.dtype.itemsize == 0
        spans.append((array.ctypes.data, array.ctypes.data + array.nbytes))
    spans.sort()
    assert all(stop <= begin for (_, stop), (begin, _) in itertools.pairwise(spans))
    assert np.ptp([len(a) for _, a in table.columns()]) == 0


# Extension headers of every opcode against the twin's own table.


@pytest.mark.parametrize("opcode", range(256))
def test_headers(opcode: int) -> None:
    expected = headers_of(opcode) or []
    assert [name.replace("CNPpad", "pad") for name in extension_headers(opcode)] == expected
    assert HEADER_LENGTH[opcode] == 12 + sum(SIZES[name] for name in expected)


def test_offsets() -> None:
    assert header_offset(0x4B, "RETH") == 12 + 4 + 8
    assert header_offset(0x4B, "ImmDt") == 12 + 4 + 8 + 16
    assert header_offset(0xA6, "RETH") == 12 + 4
    assert header_offset(0x07, "RETH") == 0


# The compiled pass against its plain-Python twin, and inside its bounds.

Frames = list[tuple[bytes, int, int]]


def nonzero(array: np.ndarray) -> Counter[int]:
    return Counter({int(i): int(array[i]) for i in np.flatnonzero(array)})


def compare(frames: Frames, check_icrc: bool = True) -> None:
    """Every column and every counter of the decoder equals the twin's."""
    dec = decoder(check_icrc=check_icrc, by_link=False)
    table = dec.decode(
        batch(
            [f for f, _, _ in frames],
            link_type=[link for _, link, _ in frames],
            wire=[wire for _, _, wire in frames],
            base_offset=24,
        )
    )
    twin = Twin(check_icrc=check_icrc)
    at, expected = 24, []
    for i, (data, link_type, wire) in enumerate(frames):
        before = len(twin.seen.rows)
        twin.frame(data, link_type, wire)
        for row in twin.seen.rows[before:]:
            expected.append(row | {"time_ns": T0 + i, "frame_number": i + 1, "file_offset": at})
        at += len(data)
    texts = dec.registry.endpoints.texts()
    for c in COLUMNS:
        got = getattr(table, c.name).tolist()
        if c.name in ("src", "dst"):
            got = [texts[index] for index in got]
        assert got == [row.get(c.name, 0) for row in expected], c.name
    order = list(dict.fromkeys(text for row in expected for text in (row["src"], row["dst"])))
    assert texts == order
    arrays, seen = dec.counters.arrays, twin.seen
    assert nonzero(arrays.outcomes[0]) == +seen.outcomes
    assert nonzero(arrays.notes[0]) == +seen.notes
    assert nonzero(arrays.ethertypes) == seen.ethertypes
    assert nonzero(arrays.protocols) == seen.protocols
    assert nonzero(arrays.udp_ports) == seen.udp_ports
    assert nonzero(arrays.roce_like) == seen.roce_like
    for priority in range(9):
        got = arrays.pause[0, priority]
        assert got[pause.FRAMES] == seen.pause[priority, "frames"]
        assert got[pause.XON] == seen.pause[priority, "xon"]
        assert got[pause.QUANTA] == seen.pause[priority, "quanta"]
    assert dec.counters.frames() == len(frames)
    assert sum(n for _, n in dec.counters.contents()) == len(frames)


ENCAPSULATING = {0x8847, 0x8848, 0xD28B, 0x8926, 0x893F, 0x8909, 0x892F, 0xF1C1}
ENCAPSULATING |= {0x894F, 0x8903, 0x22F3, 0x88E7}


def without_encapsulation(frames: Frames) -> Frames:
    """Damage may make a mirror or tunnel of a frame: the twin does not look into them."""
    kept = []
    for one in frames:
        twin = Twin()
        twin.frame(*one)
        inside = {4, 41, 47, 137, 143} & set(twin.seen.protocols)
        inside |= {2152, 4789, 4790, 4793, 6081, 6343, 6635} & set(twin.seen.udp_ports)
        if not inside and not ENCAPSULATING & set(twin.seen.ethertypes):
            kept.append(one)
    return kept


@pytest.mark.thorough
@given(st.lists(st.randoms(use_true_random=False).map(frame_rows), min_size=1, max_size=8))
@examples(150)
def test_equals_the_twin_on_any_frames(frames: Frames) -> None:
    compare(without_encapsulation(frames))


def test_equals_the_twin_on_a_large_corpus() -> None:
    rng = random.Random(1)
    frames = without_encapsulation([frame_rows(rng) for _ in range(20_000)])
    assert len(frames) > 19_000
    compare(frames)


def mutated_capture(path: Path, seed: int, limit: int) -> Frames:
    """Frames of a real capture, each cut or with one byte changed."""
    rng = random.Random(seed)
    real = read_pcap(path)
    frames = []
    for i in range(min(limit, len(real))):
        begin, size = int(real.offset[i]), int(real.captured[i])
        data = bytearray(real.data[begin : begin + size])
        if rng.random() < 0.5:
            del data[rng.randrange(min(len(data), 90)) :]
        else:
            data[rng.randrange(min(len(data), 90))] = rng.randrange(256)
        frames.append((bytes(data), 1, int(real.wire[i])))
    return frames


def test_equals_the_twin_on_damaged_real_frames(data: Path) -> None:
    for name in ("c40_rc_oddities_ipv4.atB.pcap", "c23_rc_write_vlan100.atB.pcap.gz"):
        compare(mutated_capture(data / name, seed=2, limit=2000))


BOUNDS_CHECKED = """
import sys
import numpy as np
from rocescope.analyzer.decode.headers import be32
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.wire.registry import Endpoints
from rocescope.analyzer.wire.packets import FrameBatch
from rocescope.analyzer.wire.taps import Tap, Taps
from rocescope.analyzer.wire.registry import Registry

def past_end(data):
    return be32(data, 3)

import numba
checked = numba.njit(boundscheck=True)(past_end)
for size in (0, 6):
    try:
        checked(np.zeros(size, np.uint8))
    except IndexError:
        continue
    sys.exit("bounds are not checked")

corpus = np.load(sys.argv[1])
taps = Taps()
taps.add(Tap("x", 1))
decoder = Decoder(Registry(taps=taps), check_icrc=True)
rows = 0
buffer, offset = corpus["buffer"], corpus["offset"]
for i in range(len(offset) - 1):
    # The buffer is the frame: one byte beyond it is an IndexError.
    alone = buffer[offset[i] : offset[i + 1]].copy()
    rows += len(decoder.decode(FrameBatch(
        alone, np.zeros(1, np.int64), np.array([len(alone)], np.uint32),
        corpus["wire"][i : i + 1], np.zeros(1, np.int64), np.zeros(1, np.uint16),
        corpus["link_type"][i : i + 1], 1, 0)))
print(rows)
"""


@pytest.mark.thorough
def test_never_reads_outside_a_frame(tmp_path: Path, data: Path) -> None:
    rng = random.Random(3)
    frames = [frame_rows(rng) for _ in range(15_000)]
    frames += mutated_capture(data / "c40_rc_oddities_ipv4.atB.pcap", seed=4, limit=700)
    lengths = [len(f) for f, _, _ in frames]
    np.savez(
        tmp_path / "corpus.npz",
        buffer=np.frombuffer(b"".join(f for f, _, _ in frames), np.uint8),
        offset=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        wire=np.array([wire for _, _, wire in frames], np.uint32),
        link_type=np.array([link for _, link, _ in frames], np.uint16),
    )
    environment = os.environ | {"ROCESCOPE_BOUNDSCHECK": "1"}
    done = subprocess.run(
        [sys.executable, "-c", BOUNDS_CHECKED, str(tmp_path / "corpus.npz")],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    twin = Twin()
    for one in frames:
        twin.frame(*one)
    assert int(done.stdout) == len(twin.seen.rows) > 2000
