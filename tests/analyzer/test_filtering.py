"""Filters give the rows that tshark's display filters give, and mistakes are explained."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import dpkt
import numpy as np
import pytest
from batches import decode
from hypothesis import given
from hypothesis import strategies as st
from traffic import packets

from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.filtering.compiler import Filter, Ranks
from rocescope.analyzer.filtering.grammar import (
    Comparison,
    Junction,
    Membership,
    Negation,
    Presence,
    names,
    parse,
)
from rocescope.analyzer.results.flow import Owner
from rocescope.analyzer.wire.packets import FrameBatch, PacketTable
from rocescope.analyzer.wire.registry import Registry
from rocescope.analyzer.wire.taps import Tap

from .decode.test_mrc import ACK, NACK, PROBE, SACK, WRITE_FIRST, WRITE_MIDDLE_TS, frame

# Filters give the rows that tshark's display filters give, and mistakes are explained.

# Filters give the rows that tshark's display filters give, and mistakes are explained.

ODDITIES = "c40_rc_oddities_ipv4.atB.pcap"
VLAN = "c23_rc_write_vlan100.atB.pcap.gz"
IPV6 = "c15_rc_write_ipv6_gid.atB.pcap.gz"


@cache
def packets_of(capture: Path) -> tuple[PacketTable, Registry]:
    """The packet table of a capture that dpkt reads."""
    opener = gzip.open if capture.suffix == ".gz" else open
    with opener(capture, "rb") as file:
        # dpkt gives times as Decimal seconds; the time column is checked through tshark below.
        records = [(int(time * 10**9), frame) for time, frame in dpkt.pcap.Reader(file)]
    lengths = np.array([len(frame) for _, frame in records], np.uint32)
    data = np.frombuffer(b"".join(frame for _, frame in records), np.uint8)
    ends = np.cumsum(lengths, dtype=np.int64)
    registry = Registry()
    registry.taps.add(Tap(capture.name, 1))
    frames = FrameBatch(
        data=data,
        offset=ends - lengths,
        captured=lengths,
        wire=lengths,
        time_ns=np.array([time for time, _ in records], np.int64),
        tap=np.zeros(len(records), np.uint16),
        link_type=np.ones(len(records), np.uint16),
        first_frame_number=1,
        base_offset=0,
    )
    return Decoder(registry).decode(frames), registry


def frames_passing(capture: Path, text: str) -> list[int]:
    table, registry = packets_of(capture)
    mask = Filter(text).mask(table, registry)
    assert mask.dtype == np.bool_ and len(mask) == len(table)
    return table.frame_number[mask].tolist()


SAME_AS_TSHARK = [
    (ODDITIES, "ip.src == 10.0.0.1"),
    (ODDITIES, "ip.addr == 10.0.0.1/32 and infiniband.bth.opcode == 17"),
    (ODDITIES, "infiniband.bth.psn > 16777000"),
    (ODDITIES, "infiniband.bth.psn in {0..3, 0xfffffe..0xffffff}"),
    (ODDITIES, "infiniband.aeth.syndrome >= 0x60"),
    (ODDITIES, "infiniband.aeth.syndrome != 31 && infiniband.bth.a == 0"),
    (ODDITIES, "not infiniband.aeth and !(udp.srcport < 60000)"),
    (ODDITIES, "infiniband.reth.dmalen == 0"),
    (ODDITIES, "infiniband.aeth.msn < 3 or infiniband.bth.a == 1 and frame.len > 500"),
    (ODDITIES, "(infiniband.aeth.msn < 3 or infiniband.bth.a == 1) and frame.len > 500"),
    (ODDITIES, "infiniband.bth.destqp >= 0x1a2 and udp.port == 4791"),
    (ODDITIES, "ip.id in {0x1000..0x8fff} and ip.ttl le 64 and ip.dsfield.ecn eq 0"),
    (ODDITIES, "infiniband.bth.p_key == 0xffff and infiniband.bth.padcnt != 0"),
    (ODDITIES, "infiniband.bth.se == 1 || infiniband.bth.psn == 7"),
    (ODDITIES, "ip.src != 10.0.0.1"),
    (ODDITIES, "ip.addr != 10.0.0.1 or infiniband.aeth"),
    (ODDITIES, "frame.number in {10..20} and infiniband.bth.tver == 0"),
    (ODDITIES, "infiniband.aeth.syndrome.opcode == 3"),
    (ODDITIES, "infiniband.aeth.syndrome.error_code == 0"),
    (ODDITIES, "infiniband.aeth.syndrome.error_code"),
    (ODDITIES, "infiniband.aeth.syndrome.credit_count == 31"),
    (ODDITIES, "udp and ip and ip.proto == 17 and not vlan"),
    (VLAN, "vlan and infiniband.bth.psn != 3"),
    (IPV6, "udp and ipv6 and not ip"),
    (VLAN, "vlan.id == 100 and infiniband.bth.opcode in {6, 8, 10}"),
    (VLAN, "frame.len > 1000 and vlan.priority == 3"),
    (IPV6, "ipv6.src == fd00:0:0:1::1/128 and infiniband.bth.opcode == 7"),
    (IPV6, "ipv6.hlim == 64 and ipv6.flow == 0 and not ip.src == 10.0.0.0/8"),
    (
        IPV6,
        "ip.src != 10.0.0.1 or ipv6.dst == fd00:0:0:1::1 and ipv6.tclass.ecn == 0",
    ),
]


@pytest.fixture(scope="module")
def wireshark(need_tool: Callable[[str], str]) -> Iterator[Callable[[Path, str], list[int]]]:
    """RoCE frames of a capture that pass a display filter: one Wireshark for all of them."""
    with subprocess.Popen(
        [need_tool("sharkd"), "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:

        def ask(method: str, **parameters: str) -> Any:
            request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
            print(json.dumps(request), file=process.stdin, flush=True)
            return json.loads(process.stdout.readline())["result"]

        def frames(capture: Path, text: str) -> list[int]:
            assert ask("load", file=str(capture)) == {"status": "OK"}
            passing = ask("frames", filter=f"infiniband.bth and ({text})")
            return [frame["num"] for frame in passing]

        yield frames
        process.stdin.close()


@pytest.mark.parametrize(("name", "text"), SAME_AS_TSHARK)
def test_same_rows_as_tshark(
    data: Path, wireshark: Callable[[Path, str], list[int]], name: str, text: str
) -> None:
    expected = wireshark(data / name, text)
    assert 0 < len(expected)
    assert frames_passing(data / name, text) == expected


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("opcode == RC_ACK", "infiniband.bth.opcode == 17"),
        ("opcode == write_only", "infiniband.bth.opcode == 10"),
        ("opcode == READ", "infiniband.bth.opcode in {12..16}"),
        ("opcode in {SEND_FIRST, WRITE_FIRST, 0x0c}", "infiniband.bth.opcode in {0, 6, 12}"),
        ("opcode != RC_ACK", "infiniband.bth.opcode != 17"),
        ("transport == RC", "infiniband.bth.opcode < 32"),
        ("transport in {UD, UC}", "infiniband.bth.opcode in {32..63, 96..127}"),
        ("src == 10.0.0.2 and qp >= 0x1a2", "ip.src == 10.0.0.2 && infiniband.bth.destqp >= 0x1a2"),
        ("nak", "infiniband.bth.opcode == 17 and infiniband.aeth.syndrome.opcode == 3"),
        ("rnr", "infiniband.bth.opcode == 17 and infiniband.aeth.syndrome.opcode == 1"),
        ("ack == 1", "infiniband.bth.opcode == 17 and infiniband.aeth.syndrome.opcode == 0"),
        (
            "payload == 0 and opcode == WRITE_ONLY",
            "infiniband.reth.dmalen == 0 and infiniband.bth.opcode == 10",
        ),
    ],
)
def test_own_names_mean_what_they_say(
    data: Path, wireshark: Callable[[Path, str], list[int]], ours: str, theirs: str
) -> None:
    capture = data / ODDITIES
    expected = wireshark(capture, theirs)
    assert frames_passing(capture, ours) == expected


def test_time_is_exact_to_the_nanosecond(data: Path) -> None:
    table, *_ = packets_of(data / ODDITIES)
    seconds, nanoseconds = divmod(int(table.time_ns[5]), 10**9)
    found = frames_passing(data / ODDITIES, f"frame.time_epoch == {seconds}.{nanoseconds:09d}")
    assert table.frame_number[5] in found
    assert len(found) == np.count_nonzero(table.time_ns == table.time_ns[5])


def test_taps_by_name_and_number(data: Path) -> None:
    everything = len(packets_of(data / ODDITIES)[0])
    assert len(frames_passing(data / ODDITIES, f'tap == "{ODDITIES}"')) == everything
    assert len(frames_passing(data / ODDITIES, "tap == 0")) == everything
    assert frames_passing(data / ODDITIES, "tap in {elsewhere, 7}") == []


def test_empty_table_gives_an_empty_mask() -> None:
    mask = Filter("src == 10.0.0.0/8 or tap == x or opcode == WRITE").mask(
        PacketTable.empty(0), Registry()
    )
    assert mask.tolist() == []


@pytest.mark.thorough
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "ip.scr == 10.0.0.1",
            "filter: unknown field 'ip.scr' at column 1; did you mean ip.src?",
        ),
        (
            "cnp or psm == 1",
            "filter: unknown field 'psm' at column 8; did you mean psn?",
        ),
        (
            "psn = 4",
            "filter: '=' stands at column 5 where '==' should be: psn  >>> = 4",
        ),
        (
            "(psn == 4",
            "filter: the filter ends at column 10 where ')' should be: (psn == 4 >>>",
        ),
        ("psn ==", "filter: the filter ends at column 7 where a value should be: psn == >>>"),
        ("", "filter: it is empty; write for example --filter 'ip.src == 10.0.0.1'"),
        ("psn == -1", "filter: psn takes a number, not '-1' (column 8)"),
        ("sport == 70000", "filter: 70000 does not fit sport (0 to 65535) (column 10)"),
        ("src == 10.0.0.256", "filter: '10.0.0.256' is not an address or a network (column 8)"),
        ("src > 10.0.0.1", "filter: src has no order; use ==, != or in {...} (column 7)"),
        (
            "opcode == RC_WRITE_FRIST",
            "filter: 'RC_WRITE_FRIST' is not an opcode; did you mean RC_WRITE_FIRST? (column 11)",
        ),
        ("psn in {9..3}", "filter: the range 9..3 begins above its end (column 9)"),
        (
            "transport == TCP",
            "filter: transport is one of RC, UC, RD, UD, CNP, XRC, C0, E0, MRC (column 14)",
        ),
        ("cnp == 2", "filter: cnp is true or false, not '2' (column 8)"),
        ("not " * 5000 + "cnp", "filter: nested too deeply"),
    ],
)
def test_mistakes_are_explained_in_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        Filter(text)
    assert str(error.value) == message
    assert error.value.exit_code == 2


# Filters by rank and communicator: the packets of the flows that have them.

HOSTS = ("10.0.0.1", "10.0.0.2", "fd00::3")


def owner(rank, peer, comm="0xa", end="destination"):
    return Owner(1, None, rank, end, comm=comm, peer_rank=peer)


OWNERS = {
    (HOSTS[0], HOSTS[1], 17): owner(3, 11),  # 11 sends to 3
    (HOSTS[1], HOSTS[0], 18): owner(3, 11, end="source"),  # 3 sends to 11
    (HOSTS[0], HOSTS[2], 17): owner(5, None, "0xb"),
    (HOSTS[2], HOSTS[0], 17): owner(None, None, None),
}


def table(rows):
    registry = Registry()
    for host in HOSTS:
        registry.endpoints.add(host)
    return packets(rows), registry


@pytest.mark.parametrize(
    ("text", "passing"),
    [
        ("rank == 11", [0, 1]),
        ("src_rank == 11", [0]),
        ("dst_rank == 11", [1]),
        ("rank == 3 and peer_rank == 11", [0, 1]),
        ("rank in {5..7}", [2]),
        ("rank < 5", [0, 1]),
        ("rank != 3", [2]),
        ("rank", [0, 1, 2]),
        ("not rank", [3, 4]),
        ("peer_rank == 99", []),
        ("comm == 0xa", [0, 1]),
        ("comm != 0xa", [2]),
        ("comm in {0xa 0xb}", [0, 1, 2]),
        ("comm == 0xffff", []),
    ],
)
def test_the_ranks_of_flows_select_their_packets(text, passing):
    names = [*OWNERS, (HOSTS[1], HOSTS[2], 17)]
    rows = [{"src": HOSTS.index(s), "dst": HOSTS.index(d), "dest_qp": q} for s, d, q in names]
    packets, registry = table(rows)
    mask = Filter(text).mask(packets, registry, Ranks(OWNERS))
    assert np.flatnonzero(mask).tolist() == passing


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(16, 19)), max_size=60))
def test_columns_are_those_of_each_row(rows):
    packets, registry = table([{"src": s, "dst": d, "dest_qp": q} for s, d, q in rows])
    columns = Ranks(OWNERS).columns(packets, registry)
    for at, (src, dst, qp) in enumerate(rows):
        known = OWNERS.get((HOSTS[src], HOSTS[dst], qp))
        ranks = (None, None) if known is None else known.ranks
        got = tuple(int(columns[name][at]) for name in ("sender", "receiver"))
        assert got == tuple(-1 if rank is None else rank for rank in ranks)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rank == x", "rank takes a number, not 'x'"),
        ("comm < 0xa", "comm has no order"),
        ("rank == 4294967296", "does not fit rank"),
    ],
)
def test_mistakes(text, says):
    with pytest.raises(UsageError, match=says):
        Filter(text)


def test_without_ranks_the_filter_says_what_it_needs():
    packets, registry = table([])
    with pytest.raises(UsageError, match="--nccl-log"):
        Filter("psn > 0 or rank == 3").mask(packets, registry)
    assert Filter("psn > 0").of_job is None
    assert not Ranks({("a", "b", 1): owner(None, None)})


# Filters on fields of MRC, over packets written out by hand.

OTHER_VENDOR = "c0" + WRITE_FIRST[2:]
PACKETS = [WRITE_FIRST, WRITE_MIDDLE_TS, ACK, SACK, NACK, PROBE, OTHER_VENDOR]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mrc", [0, 1, 2, 3, 4, 5]),
        ("transport == MRC", [0, 1, 2, 3, 4, 5]),
        ("transport == C0", [6]),
        ("opcode == MRC_SACK", [3]),
        ("mrc.rtx", [1]),
        ("mrc.ev == 0xabcdc001", [0, 1, 2, 3, 4, 5]),
        ("mrc.msn == 0x102", [0, 1]),
        ("mrc.entropy == 0xabcdc001", [3, 4]),
        ("mrc.skip == 2", [3]),
        ("mrc.skip < 2", []),
        ("mrc.nack == 1", [4]),
        ("mrc.ooo >= 17", [3]),
        ("not mrc.trimmed and not mrc", [6]),
    ],
)
def test_fields(text: str, expected: list[int]) -> None:
    table = decode([frame(packet) for packet in PACKETS])
    mask = Filter(text).mask(table, Registry())
    assert mask.nonzero()[0].tolist() == expected


# The syntax of filters: precedence, notations, and the column of every mistake.


def shown(node):
    """A tree with every bracket written."""
    match node:
        case Presence(field):
            return field.text
        case Comparison(field, operator, value):
            return f"{field.text}{operator}{value.text}"
        case Membership(field, ranges):
            return f"{field.text} in {[(low.text, high.text) for low, high in ranges]}"
        case Negation(operand):
            return f"!({shown(operand)})"
        case Junction(conjunction, operands):
            return f"({(' & ' if conjunction else ' | ').join(map(shown, operands))})"


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a or b and not c or d", "(a | (b & !(c)) | d)"),
        ("(a || b) && !c", "((a | b) & !(c))"),
        ("not a and b", "(!(a) & b)"),
        ("!(a or b)", "!((a | b))"),
        ("psn ge 5 and qp ne 0x11", "(psn>=5 & qp!=0x11)"),
        ("ip.src==10.0.0.0/8", "ip.src==10.0.0.0/8"),
        ("opcode == 'RC SEND only'", "opcode==RC SEND only"),
        ("sport in {1, 5..9 11}", "sport in [('1', '1'), ('5', '9'), ('11', '11')]"),
        ("sport not in {1}", "!(sport in [('1', '1')])"),
        ("ipv6.src == fd00::1", "ipv6.src==fd00::1"),
    ],
)
def test_trees(text, tree):
    assert shown(parse(text)) == tree


def test_columns_and_names():
    tree = parse("cnp and  psn > 7")
    assert [(field.text, field.column) for field in names(tree)] == [("cnp", 1), ("psn", 10)]
    assert tree.operands[1].value.column == 16


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("psn = 5", r"'=' stands at column 5 where '==' should be: psn  >>> = 5"),
        ("psn ==", r"the filter ends at column 7 where a value should be"),
        ("(a or b", r"the filter ends at column 8 where '\)' should be"),
        ("a b", r"'b' stands at column 3 where an operator such as =="),
        ("and a", r"'a' stands at column 5 where an operator such as =="),
        ("a and", r"the filter ends at column 6 where a field should be"),
        ("psn in {1..}", r"where a value should be"),
        ("psn == 5 6", r"'6' stands at column 10 where 'and', 'or' or the end should be"),
    ],
)
def test_mistakes_grammar(text, message):
    with pytest.raises(UsageError, match=message):
        parse(text)


@given(st.text("ab() !&|=<>{}.,'\"not1", max_size=30))
def test_any_text_is_a_tree_or_one_line(text):
    try:
        parse(text)
    except UsageError as error:
        assert str(error).startswith("filter: ") and "\n" not in str(error)
