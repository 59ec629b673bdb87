"""NCCL's grants: entries written field by field, and captures of jobs with their truth."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from batches import decode
from encapsulations import (
    erspan2,
    erspan3,
    ethernet,
    flow_sample,
    gre,
    ipv4,
    raw_header,
    sflow,
    udp,
    vxlan,
)
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.decode.grants import (
    CUT,
    GRANT_COLUMNS,
    LAYOUTS,
    RANK_KNOWN,
    SEVERAL_RANKS,
    grant_rows,
)
from rocescope.analyzer.decode.merge import merge_tables
from rocescope.analyzer.filtering.compiler import Filter
from rocescope.analyzer.wire.packets import PacketTable
from rocescope.analyzer.wire.registry import Registry

DATA = Path(__file__).parents[2] / "data"
JOBS = sorted((DATA / "jobs").glob("*/truth.json"))
VERSIONS = range(1, len(LAYOUTS) + 1)

# Entries and frames, as NCCL makes them.


@dataclass(frozen=True)
class Entry:
    """One receive that is granted."""

    rank: int = 2
    size: int = 1 << 20
    number: int = 7
    address: int = 0x7F2A_4000_0000
    rkeys: tuple[int, ...] = (0x1801_2233,)


def body(version: int, entries: Sequence[Entry]) -> bytes:
    """The payload of a grant, after the struct of each version."""
    n, parts = len(entries), []
    for e in entries:
        keys = [*e.rkeys, *[0] * (8 - len(e.rkeys))]
        match version:
            case 1:
                part = struct.pack("<QiIIIQ", e.address, e.size, keys[0], n, e.rank, e.number)
            case 2:
                part = struct.pack(
                    "<Qi2III4xQ24x", e.address, e.size, *keys[:2], n, e.rank, e.number
                )
            case 3:
                part = struct.pack("<QQ4IIIQ16x", e.address, e.size, *keys[:4], n, e.rank, e.number)
            case _:
                part = struct.pack("<QQ8IIIQ", e.address, e.size, *keys, n, e.rank, e.number)
        parts.append(part)
    return b"".join(parts)


def frame(
    payload: bytes,
    *,
    opcode: int = 0x0A,
    table_address: int = 0x5560_0000_1200,
    length: int | None = None,
    vlan: bool = False,
    ipv6: bool = False,
) -> bytes:
    """An Ethernet frame with an RC WRITE ONLY (or another opcode) of this payload."""
    length = len(payload) if length is None else length
    bth = struct.pack(">BBHII", opcode, 0x40, 0xFFFF, 0x11, 0x8000_0005)
    reth = struct.pack(">QII", table_address, 0x1234_5678, length)
    rest = bth + reth + payload + bytes(4)
    datagram = struct.pack(">HHHH", 50_000, 4791, 8 + len(rest), 0)
    if ipv6:
        addresses = bytes.fromhex("20010db8" + "00" * 11 + "01" + "20010db8" + "00" * 11 + "02")
        ip = struct.pack(">IHBB", 0x6000_0000, 8 + len(rest), 17, 64) + addresses
    else:
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 28 + len(rest), 1, 0x4000, 64, 17, 0)
        ip += bytes([10, 0, 0, 1, 10, 0, 0, 2])
    tag = struct.pack(">HH", 0x8100, 100) if vlan else b""
    ethertype = struct.pack(">H", 0x86DD if ipv6 else 0x0800)
    return bytes(6) + b"\x02" + bytes(5) + tag + ethertype + ip + datagram + rest


BODY_AT = 14 + 20 + 8 + 12 + 16


def told(*frames: bytes) -> list[dict[str, int]]:
    """What the grants among these frames tell: the known fields of each."""
    grants = decode(list(frames)).grants
    return [] if grants is None else [known(grant) for grant in grants]


def known(grant: np.void) -> dict[str, int]:
    return {c.name: int(grant[c.name]) for c in GRANT_COLUMNS if grant[c.name] != c.unknown}


ONE = {"rank": 2, "slot_bytes": 1 << 20, "number": 7, "entries": 1}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("headers", [{}, {"vlan": True}, {"ipv6": True}])
def test_every_version_and_header(version: int, headers: dict[str, bool]) -> None:
    whole = frame(body(version, [Entry()]), **headers)
    assert told(whole) == [ONE | {"layout": version}]
    first = frame(body(version, [Entry(rank=0, number=1)]), **headers)
    assert told(first) == [ONE | {"layout": version, "rank": 0, "number": 1}]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("n", [2, 5, 8])
def test_grouped_receives(version: int, n: int) -> None:
    alike = [Entry(address=0x7F00_0000_1000 * (i + 1), size=4096 << i) for i in range(n)]
    first = {"slot_bytes": 4096, "number": 7, "entries": n, "layout": version}
    assert told(frame(body(version, alike))) == [first | {"rank": 2}]
    mixed = [*alike[1:], replace(alike[0], rank=3)]
    (several,) = told(frame(body(version, mixed)))
    assert several == first | {"slot_bytes": 8192, "reason": SEVERAL_RANKS}
    assert told(frame(body(version, [*alike[1:], replace(alike[0], number=8)]))) == []
    assert told(frame(body(version, alike)[: (n - 1) * LAYOUTS[version - 1].entry_bytes])) == []


def test_nine_entries_are_no_grant() -> None:
    for version in VERSIONS:
        assert told(frame(body(version, [Entry()] * 9))) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("n", [1, 3])
def test_cut_at_every_byte(version: int, n: int) -> None:
    """A cut grant tells nothing that the whole does not, and its rank once all are captured."""
    layout = LAYOUTS[version - 1]
    entries = [Entry(rkeys=(0x1801_2233, 0x1801_4455)[: layout.rkeys])] * n
    whole = frame(body(version, entries))
    (all_of_it,) = told(whole)
    last_rank = BODY_AT + (n - 1) * layout.entry_bytes + layout.tag + 4
    for length in range(BODY_AT, len(whole)):
        grants = decode([whole[:length]], wire=[len(whole)]).grants
        if length < BODY_AT + 8:
            assert grants is None
            continue
        assert grants is not None
        (part,) = (known(grant) for grant in grants)
        assert ("rank" in part) == ("reason" not in part)
        assert ("rank" in part) <= (length >= last_rank)
        if length >= len(whole) - 4:
            assert part == all_of_it
        if "rank" not in part:
            assert part.pop("reason") == CUT
        assert part.items() <= all_of_it.items()


@pytest.mark.parametrize(
    ("version", "length", "expected"),
    [
        (1, 94, {"rank": 2}),
        (2, 98, {"rank": 2}),
        (3, 110, {"rank": 2}),
        (4, 126, {"rank": 2}),
        (2, 96, {"reason": CUT, "layout": 2, "slot_bytes": 1 << 20}),
        (3, 96, {"reason": CUT}),
        (3, 118, {"rank": 2, "number": 7}),
        (4, 134, {"rank": 2, "number": 7}),
        (4, 128, {"rank": 2}),
    ],
)
def test_bytes_that_a_capture_needs(version: int, length: int, expected: dict[str, int]) -> None:
    """The lengths of docs/ranks.md."""
    whole = frame(body(version, [Entry()]))
    grants = decode([whole[:length]], wire=[len(whole)]).grants
    assert grants is not None
    (part,) = (known(grant) for grant in grants)
    assert expected.items() <= part.items()
    assert ("number" in part) == ("number" in expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_lengths_are_the_least(version: int) -> None:
    whole = frame(body(version, [Entry()]))
    rank_ends = BODY_AT + LAYOUTS[version - 1].tag + 4
    grants = decode([whole[: rank_ends - 1]], wire=[len(whole)]).grants
    assert grants is not None
    assert grants["rank"].tolist() == [-1]


INNER = frame(body(3, [Entry()]))
MIRRORS = {
    "erspan II": ethernet(0x0800, ipv4(47, erspan2(INNER))),
    "erspan III": ethernet(0x0800, ipv4(47, erspan3(INNER))),
    "gre of ip": ethernet(0x0800, ipv4(47, gre(0x0800, INNER[14:]))),
    "vxlan": ethernet(0x0800, ipv4(17, vxlan(INNER))),
    "sflow": ethernet(0x0800, ipv4(17, udp(6343, sflow(flow_sample(raw_header(INNER)))))),
}


@pytest.mark.parametrize("name", MIRRORS)
def test_mirrors(name: str) -> None:
    """Also between packets of other mirrors, and cut by the mirror itself."""
    for frames in ([MIRRORS[name]], [frame(bytes(64)), MIRRORS[name], frame(bytes(64))]):
        assert told(*frames) == [ONE | {"layout": 3}]


def test_a_sample_that_is_too_short() -> None:
    cut = ethernet(0x0800, ipv4(17, udp(6343, sflow(flow_sample(raw_header(INNER, held=96))))))
    assert told(cut) == [{"reason": CUT}]


def test_other_packets() -> None:
    """Packets that carry the bytes of a grant and are none."""
    good = body(3, [Entry()])
    assert told(frame(good)) != []
    assert told(frame(good, opcode=0x06)) == []  # WRITE FIRST
    assert told(frame(good + bytes(4), opcode=0x0B)) == []  # with immediate
    assert told(frame(good, opcode=0x2A)) == []  # UC
    assert told(frame(good, length=65)) == []
    assert told(frame(good, length=1 << 31)) == []
    assert told(frame(good + bytes(64))) == []
    assert told(frame(good, table_address=0x5560_0000_1208)) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "wrong",
    [
        {"address": 0},
        {"address": 1 << 57},
        {"address": (1 << 64) - 4096},
        {"rkeys": (0,)},
        {"number": 0},
        {"number": (1 << 40) + 1},
        {"number": 1 << 63},
        {"rank": 1 << 20},
        {"rank": (1 << 32) - 1},
    ],
)
def test_what_nccl_never_writes(version: int, wrong: dict[str, int]) -> None:
    assert told(frame(body(version, [replace(Entry(), **wrong)]))) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [1, 2])
def test_a_negative_size(version: int) -> None:
    assert told(frame(body(version, [Entry(size=-1)]))) == []


CONTENTS = st.one_of(
    st.binary(min_size=64, max_size=64),
    st.text(alphabet=st.characters(codec="ascii"), min_size=64, max_size=64).map(str.encode),
    st.integers(0, 255).map(lambda value: bytes([value]) * 64),
    st.lists(st.integers(0, 15), min_size=16, max_size=16).map(lambda n: struct.pack("<16I", *n)),
    st.lists(st.integers(0, 15), min_size=8, max_size=8).map(lambda n: struct.pack("<8Q", *n)),
    st.lists(st.floats(width=32), min_size=16, max_size=16).map(lambda n: struct.pack("<16f", *n)),
)


@given(CONTENTS, st.sampled_from([32, 64]))
def test_other_contents_are_no_grants(content: bytes, length: int) -> None:
    """Also where other contents resemble a grant, its twin agrees."""
    assert told(frame(content[:length])) == read_plainly(content[:length], length)


# The same in plain Python.


def fits(entry: bytes, n: int, version: int) -> bool:
    """Whether the captured first bytes of an entry fit a version."""
    layout = LAYOUTS[version - 1]
    at, fields = 0, {}
    widths = [("address", 8), ("size", layout.size_bytes)]
    widths += [(f"rkey{i}", 4) for i in range(layout.rkeys)]
    widths += [("nreqs", 4), ("rank", 4)]
    if version == 2:
        widths.append(("hole", 4))
    widths.append(("number", 8))
    for name, width in widths:
        if at + width <= len(entry):
            fields[name] = int.from_bytes(entry[at : at + width], "little")
        elif name == "hole":
            fields[name] = int(any(entry[at:]))
        at += width
    keys = [v for name, v in fields.items() if name.startswith("rkey")]
    most = 1 << 40 if layout.size_bytes == 8 else (1 << 31) - 1
    return (
        0 < fields.get("address", 1) < 1 << 57
        and fields.get("size", 0) <= most
        and keys[:1] != [0]
        and all(before or not after for before, after in pairwise(keys))
        and fields.get("nreqs", n) == n
        and fields.get("rank", 0) < 1 << 20
        and fields.get("hole", 0) == 0
        and 1 <= fields.get("number", 1) <= 1 << 40
        and not any(entry[at:])
    )


def read_plainly(held: bytes, length: int) -> list[dict[str, int]]:
    """What a grant with these captured bytes of its `length` tells; [] if it is none."""
    if len(held) < 8:
        return []
    found = []
    for version, layout in zip(VERSIONS, LAYOUTS, strict=True):
        n, rest = divmod(length, layout.entry_bytes)
        if rest or not 1 <= n <= 8:
            continue
        size = layout.entry_bytes
        entries = [held[i * size : (i + 1) * size] for i in range(n)]
        numbers = [e[layout.idx : layout.idx + 8] for e in entries]
        numbers = [number for number in numbers if len(number) == 8]
        if len(set(numbers)) > 1 or not all(fits(e, n, version) for e in entries):
            continue
        tells = {"entries": n, "layout": version}
        if len(entries[0]) >= 8 + layout.size_bytes:
            tells["slot_bytes"] = int.from_bytes(entries[0][8 : 8 + layout.size_bytes], "little")
        if numbers:
            tells["number"] = int.from_bytes(numbers[0], "little")
        ranks = [e[layout.tag : layout.tag + 4] for e in entries]
        if any(len(rank) < 4 for rank in ranks):
            tells["reason"] = CUT
        elif len(set(ranks)) > 1:
            tells["reason"] = SEVERAL_RANKS
        else:
            tells["rank"] = int.from_bytes(ranks[0], "little")
        found.append(tells)
    return found if len(found) < 2 else [{"reason": CUT}]


GRANTS = st.builds(
    Entry,
    rank=st.integers(0, 1 << 21),
    size=st.integers(0, (1 << 31) - 1),
    number=st.one_of(st.integers(0, 300), st.integers(0, 1 << 41)),
    address=st.integers(0, 1 << 58),
    rkeys=st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=8).map(tuple),
)


@given(st.data())
def test_like_the_twin(data: st.DataObject) -> None:
    """Grants of every version, damaged and cut, are read as plain Python reads them."""
    version = data.draw(st.sampled_from(VERSIONS))
    entry = data.draw(GRANTS)
    entries = [entry] * data.draw(st.sampled_from([1, 1, 1, 2, 8]))
    content = bytearray(body(version, entries))
    for _ in range(data.draw(st.integers(0, 2))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    whole = frame(bytes(content))
    held = data.draw(st.integers(0, len(content)))
    cut = whole[: BODY_AT + held] if held < len(content) else whole
    grants = decode([cut], wire=[len(whole)]).grants
    found = [] if grants is None else [known(grant) for grant in grants]
    assert found == read_plainly(bytes(content[:held]), len(content))


@given(GRANTS, st.sampled_from(VERSIONS), st.sampled_from([1, 2, 4, 8]))
def test_no_whole_grant_fits_two_versions(entry: Entry, version: int, n: int) -> None:
    """So a whole grant always tells its rank, or is none."""
    for grant in told(frame(body(version, [entry] * n))):
        assert grant["layout"] == version
        assert grant["rank"] == entry.rank


def test_merged_devices() -> None:
    """One rkey for each device of a merged NIC; a gap between them is none."""
    for version in VERSIONS:
        most = LAYOUTS[version - 1].rkeys
        for devices in range(1, most + 1):
            (grant,) = told(frame(body(version, [Entry(rkeys=tuple(range(9, 9 + devices)))])))
            assert grant == ONE | {"layout": version}
        if most > 2:
            assert told(frame(body(version, [Entry(rkeys=(9, 0, 9))]))) == []


# Beside the rows.


def table_of(*ranks: int | None, start_ns: int = 0, step_ns: int = 1) -> PacketTable:
    """A packet for each rank, a grant to it; None: a packet without a grant."""
    frames = [
        frame(bytes(64)) if rank is None else frame(body(3, [Entry(rank=rank)])) for rank in ranks
    ]
    return decode(frames, time_ns=[start_ns + i * step_ns for i in range(len(frames))])


def by_row(table: PacketTable) -> dict[int, int]:
    if table.grants is None:
        return {}
    return dict(zip(table.grants["row"].tolist(), table.grants["rank"].tolist(), strict=True))


def test_rows_follow_the_table() -> None:
    """Slices, selections, joined and merged tables keep the records with their rows."""
    table = table_of(None, 1, 2, None, 3)
    assert by_row(table) == {1: 1, 2: 2, 4: 3}
    part = table.slice(2, 5)
    assert by_row(part) == {0: 2, 2: 3}
    assert by_row(table.take(np.array([4, 3, 2, 0]))) == {0: 3, 2: 2}
    assert table.take(table.frame_number == 1).grants is None
    assert by_row(PacketTable.concatenate([table.slice(3, 4), part])) == {1: 2, 3: 3}
    other = table_of(8, None, 9, start_ns=2, step_ns=10)
    times = table_of(None, 1, 2, None, 3, step_ns=10)
    (merged,) = merge_tables([iter([times]), iter([other])])
    assert merged.time_ns.tolist() == [0, 2, 10, 12, 20, 22, 30, 40]
    assert by_row(merged) == {1: 8, 2: 1, 4: 2, 5: 9, 7: 3}


def test_no_grants_no_records() -> None:
    assert table_of(None, None).grants is None
    table = table_of(None)
    assert grant_rows(table.take(np.zeros(1, np.bool_)), np.zeros(0, np.uint8), 0) is None


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("nccl.grant", [0, 1, 2, 3]),
        ("nccl.rank", [0, 1, 3]),
        ("nccl.rank == 0", [0]),
        ("nccl.rank >= 1", [1, 3]),
        ("not nccl.rank", [2, 4]),
        ("nccl.slot == 524288", [1]),
        ("nccl.number == 9", [3]),
        ("nccl.entries > 1", [2]),
    ],
)
def test_filters(text: str, rows: list[int]) -> None:
    several = [Entry(), Entry(rank=3)]
    table = decode(
        [
            frame(body(3, [Entry(rank=0)])),
            frame(body(2, [Entry(rank=1, size=1 << 19)])),
            frame(body(3, several)),
            frame(body(1, [Entry(number=9)])),
            frame(bytes(64)),
        ]
    )
    mask = Filter(text).mask(table, Registry())
    assert np.flatnonzero(mask).tolist() == rows


# Captures of jobs, with the rank of each address.


def test_there_are_jobs() -> None:
    assert JOBS


@pytest.mark.parametrize("truth", JOBS, ids=lambda path: path.parent.name)
def test_every_rank_of_a_job(truth: Path) -> None:
    """Each WRITE of 64 bytes is a grant there, and names the rank of its destination."""
    jobs = json.loads(truth.read_text())["jobs"]
    rank_of = {r["address"]: r["rank"] for job in jobs for r in job["ranks"]}
    total = 0
    for path in sorted(truth.parent.glob("*.pcap.zst")):
        registry = Registry()
        numbers: dict[tuple[int, int], int] = {}
        with open_capture(str(path), registry.taps) as capture:
            decoder = Decoder(registry)
            for frames in capture.batches():
                table = decoder.decode(frames)
                rows = np.flatnonzero((table.opcode == 0x0A) & (table.dma_length == 64))
                if not len(rows):
                    continue
                grants = table.grants
                assert grants is not None
                assert grants["row"].tolist() == rows.tolist()
                assert set(grants["reason"].tolist()) == {RANK_KNOWN}
                addresses = registry.endpoints.texts()
                named = [rank_of[addresses[end]] for end in table.dst[rows].tolist()]
                assert grants["rank"].tolist() == named
                total += len(rows)
                for end, qp, number in zip(
                    table.dst[rows].tolist(),
                    table.dest_qp[rows].tolist(),
                    grants["number"].tolist(),
                    strict=True,
                ):
                    assert number <= numbers.get((end, qp), 0) + 1  # or retransmitted
                    numbers[end, qp] = max(number, numbers.get((end, qp), 0))
    assert total > 100
