"""The decoder as callers use it: batches, taps, options, the life of its tables."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest
from batches import batch, decode, decoder

from rocescope.analyzer.decode import outcomes
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.wire.packets import LENGTH_MISMATCH
from rocescope.analyzer.wire.registry import Endpoints, Registry
from rocescope.analyzer.wire.taps import Tap, Taps


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
