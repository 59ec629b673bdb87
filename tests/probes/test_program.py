"""The environment in which bcc compiles."""

from __future__ import annotations

import ctypes
import ipaddress
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from batches import batch, decoder
from bpf_runs import run_program
from examples import first
from hypothesis import given
from hypothesis import strategies as st
from network import bth, ethernet, ipv4, ipv6, roce, udp
from runs import TAP, ProbeRuns

from rocescope.analyzer.decode.outcomes import ROCE
from rocescope.analyzer.errors import CaptureError
from rocescope.analyzer.filtering.compiler import Filter
from rocescope.probes.program import compile as compiling
from rocescope.probes.program.compile import (
    HEADERS,
    import_bcc,
    known_machine_code,
    machine_code,
    machine_code_apart,
    store,
    stored,
    stub_headers,
)
from rocescope.probes.program.filter import c_condition
from rocescope.probes.program.program import ProgramOptions, source_text
from rocescope.probes.rings import LARGEST_RECORD, LOSS, RECORD_HEADER, RingMaps, ring_layout

# The environment in which bcc compiles.

# The environment in which bcc compiles.


@pytest.mark.parametrize("before", [None, "/usr/src/linux"])
def test_the_variable_is_put_back(before, monkeypatch):
    if before is None:
        monkeypatch.delenv("BCC_KERNEL_SOURCE", raising=False)
    else:
        monkeypatch.setenv("BCC_KERNEL_SOURCE", before)
    with pytest.raises(ValueError, match="inside"), stub_headers():
        assert os.environ["BCC_KERNEL_SOURCE"] == str(HEADERS)
        raise ValueError("inside")
    assert os.environ.get("BCC_KERNEL_SOURCE") == before


def test_there_are_headers_that_only_their_owner_writes():
    files = list(HEADERS.rglob("*.h"))
    assert files and not any(file.stat().st_mode & 0o002 for file in files)


# Machine code of probes: compiled once, then from the cache, with the maps of this process.

SOURCE = """
unsigned long long pseudo(unsigned long long, unsigned long long) asm("llvm.bpf.pseudo");
static void *(*look_up)(void *map, const void *key) = (void *)1;

int probe(void *context)
{
    unsigned int key = 24; /* looks like the code of an instruction with an index */
    unsigned long long wide = 0x1800000118ull;
    unsigned int *one = look_up((void *)pseudo(1, FIRST), &key);
    unsigned long long *two = look_up((void *)pseudo(1, SECOND), &wide);

    return one && two ? *one + *two : 0;
}
"""
PROBE = ("probe",)


def text(first: int, second: int) -> str:
    return f"#define FIRST {first}\n#define SECOND {second}\n{SOURCE}"


@pytest.fixture
def compiled(live_capture: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The texts that were compiled; nothing is known from before."""
    texts = []

    def counted(text: str, functions: tuple[str, ...]) -> dict[str, bytes]:
        texts.append(text)
        return machine_code(text, functions)

    monkeypatch.setattr(compiling, "machine_code_apart", counted)
    compiling._known.cache_clear()
    yield texts
    compiling._known.cache_clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the cache."""
    monkeypatch.setattr(compiling, "cache_base", lambda: str(tmp_path))
    return tmp_path


def test_maps_are_those_of_the_call(compiled: list[str], folder: Path) -> None:
    for maps in ((1234, 77), (5, 1 << 30)):
        assert known_machine_code(text(0, 1), PROBE, maps) == machine_code(text(*maps), PROBE)
    assert len(compiled) == 1


def test_another_process_compiles_nothing(compiled: list[str], folder: Path) -> None:
    first = known_machine_code(text(0, 1), PROBE, (3, 4))
    compiling._known.cache_clear()
    assert known_machine_code(text(0, 1), PROBE, (3, 4)) == first
    assert len(compiled) == 1
    known_machine_code(text(1, 0), PROBE, (3, 4))
    assert len(compiled) == 2


def test_a_damaged_file_is_compiled_again(compiled: list[str], folder: Path) -> None:
    first = known_machine_code(text(0, 1), PROBE, (3, 4))
    (file,) = folder.glob("*/*")
    file.write_bytes(file.read_bytes()[:-1])
    compiling._known.cache_clear()
    assert known_machine_code(text(0, 1), PROBE, (3, 4)) == first
    assert len(compiled) == 2


@pytest.mark.thorough
@pytest.mark.parametrize("base", [None, "/proc/none"])
def test_a_cache_that_takes_nothing_is_no_error(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch, base: str | None
) -> None:
    monkeypatch.setattr(compiling, "cache_base", lambda: base)
    assert known_machine_code(text(0, 1), PROBE, (3, 4)) == machine_code(text(3, 4), PROBE)


def test_a_mistake_in_the_source_is_one_error(compiled: list[str], folder: Path) -> None:
    with pytest.raises(CaptureError, match="cannot compile"):
        known_machine_code("int probe(", PROBE, ())
    assert not list(folder.iterdir())


@pytest.mark.thorough
def test_no_compiler_stays_in_the_process(live_capture: None) -> None:
    program = f"""
from rocescope.analyzer.errors import CaptureError
from rocescope.probes.program import compile as compiling
compiling.cache_base = lambda: None
assert compiling.known_machine_code({text(0, 1)!r}, {PROBE}, (3, 4))["probe"]
try:
    compiling.known_machine_code("int probe(", {PROBE}, ())
except CaptureError as error:
    print(error)
print("LLVM" in open("/proc/self/maps").read())
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    said, loaded = done.stdout.splitlines()
    assert "cannot compile" in said
    assert loaded == "False"


def test_a_compiler_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("/bin/false", "/nowhere"):
        monkeypatch.setattr(sys, "executable", program)
        with pytest.raises(CaptureError, match="ended without an answer"):
            machine_code_apart(SOURCE, PROBE)


# What the probes find in frames, how they filter and sample, and their layouts.

PAYLOAD = bytes(range(256)) * 2
ROCE_UDP = udp(bth(5) + PAYLOAD)


def gre(protocol: int, payload: bytes, flags: int = 0, options: bytes = b"") -> bytes:
    return struct.pack(">HH", flags, protocol) + options + payload


def srh(next_header: int, segments: int = 2) -> bytes:
    """A segment routing header, RFC 8754."""
    head = struct.pack(">BBBBBBH", next_header, 2 * segments, 4, 0, segments - 1, 0, 0)
    return head + bytes(16 * segments)


INNER = ethernet(ipv4(ROCE_UDP))
ERSPAN_2 = bytes.fromhex("1064000000000001")
ERSPAN_3 = bytes.fromhex("200a0000000000000000")
VXLAN = bytes.fromhex("0800000000000500")
LABEL, LAST_LABEL = bytes.fromhex("00064040"), bytes.fromhex("00065140")

PLAIN = {
    "ipv4": ethernet(ipv4(ROCE_UDP)),
    "ipv4 options": ethernet(ipv4(ROCE_UDP, options=b"\x01" * 40)),
    "ipv4 first fragment": ethernet(ipv4(ROCE_UDP)[:6] + b"\x20\x00" + ipv4(ROCE_UDP)[8:]),
    "ipv6": ethernet(ipv6(ROCE_UDP), 0x86DD),
    "ipv6 hop-by-hop": ethernet(ipv6(b"\x11\0" + bytes(6) + ROCE_UDP, next_header=0), 0x86DD),
    "ipv6 destination, routing": ethernet(
        ipv6(b"\x2b\1" + bytes(14) + b"\x11\2\4" + bytes(21) + ROCE_UDP, next_header=60), 0x86DD
    ),
    "ipv6 first fragment": ethernet(
        ipv6(b"\x11\0\0\1" + bytes(4) + ROCE_UDP, next_header=44), 0x86DD
    ),
    "ipv6 eight extension headers": ethernet(
        ipv6((b"\x3c\0" + bytes(6)) * 7 + b"\x11\0" + bytes(6) + ROCE_UDP, next_header=60), 0x86DD
    ),
    "vlan": ethernet(ipv4(ROCE_UDP), tags=[(0x8100, 100)]),
    "q-in-q": ethernet(ipv4(ROCE_UDP), tags=[(0x88A8, 5), (0x8100, 100)]),
    "four tags": ethernet(ipv6(ROCE_UDP), 0x86DD, tags=[(0x9100, 1)] * 4),
    "rocev1": ethernet(ipv6(bth(5) + PAYLOAD, next_header=0x1B), 0x8915),
    "shortest": ethernet(ipv4(udp(bth(5)))),
    "mpls": ethernet(LABEL + LAST_LABEL + ipv4(ROCE_UDP), 0x8847),
    "mpls ipv6": ethernet(LAST_LABEL + ipv6(ROCE_UDP), 0x8847),
    "port of mrc": ethernet(ipv4(udp(bth(5) + PAYLOAD, dport=4971))),
    "small write": ethernet(ipv4(udp(bth(5, opcode=0x0A) + bytes(16 + 64 + 4)))),
    "small write, ipv6": ethernet(ipv6(udp(bth(5, opcode=0x0A) + bytes(16 + 64 + 4))), 0x86DD),
    "write": ethernet(ipv4(udp(bth(5, opcode=0x0A) + bytes(16 + 256 + 4)))),
}
LONG = ("ipv6 eight extension headers", "small write", "small write, ipv6")
"""Of these more is kept too."""
ENCAPSULATED = {
    "ip in ip": ethernet(ipv4(ipv4(ROCE_UDP), protocol=4)),
    "ipv6 in ipv4": ethernet(ipv4(ipv6(ROCE_UDP), protocol=41)),
    "srv6": ethernet(ipv6(srh(4) + ipv4(ROCE_UDP), next_header=43), 0x86DD),
    "srv6 ipv6": ethernet(ipv6(srh(41, 4) + ipv6(ROCE_UDP), next_header=43), 0x86DD),
    "srv6 reduced": ethernet(ipv6(ipv6(ROCE_UDP), next_header=41), 0x86DD),
    "srv6 ethernet": ethernet(ipv6(srh(143) + INNER, next_header=43), 0x86DD),
    "gre": ethernet(ipv4(gre(0x0800, ipv4(ROCE_UDP)), protocol=47)),
    "gre key": ethernet(ipv4(gre(0x86DD, ipv6(ROCE_UDP), 0x2000, bytes(4)), protocol=47)),
    "erspan I": ethernet(ipv4(gre(0x88BE, INNER), protocol=47)),
    "erspan II": ethernet(ipv4(gre(0x88BE, ERSPAN_2 + INNER, 0x1000, bytes(4)), protocol=47)),
    "erspan II vlan": ethernet(
        ipv4(
            gre(
                0x88BE,
                ERSPAN_2 + ethernet(ipv6(ROCE_UDP), 0x86DD, tags=[(0x8100, 7)]),
                0x1000,
                bytes(4),
            ),
            protocol=47,
        )
    ),
    "erspan III": ethernet(
        ipv4(gre(0x22EB, ERSPAN_3 + b"\0\0" + INNER, 0x1000, bytes(4)), protocol=47)
    ),
    "erspan III subheader": ethernet(
        ipv4(gre(0x22EB, ERSPAN_3 + b"\0\1" + bytes(8) + INNER, 0x1000, bytes(4)), protocol=47)
    ),
    "vxlan": ethernet(ipv4(udp(VXLAN + INNER, dport=4789))),
    "vxlan over ipv6": ethernet(ipv6(udp(VXLAN + INNER, dport=4789)), 0x86DD),
    "geneve": ethernet(ipv4(udp(b"\0\0\x65\x58" + bytes(4) + INNER, dport=6081))),
    "geneve of ip, options": ethernet(
        ipv4(udp(b"\2\0\x08\0" + bytes(12) + ipv4(ROCE_UDP), dport=6081))
    ),
    "mpls pseudo-wire": ethernet(LABEL + LAST_LABEL + bytes(4) + INNER, 0x8847),
    "mpls in ip": ethernet(ipv4(LAST_LABEL + ipv4(ROCE_UDP), protocol=137)),
    "mpls in gre": ethernet(ipv4(gre(0x8847, LAST_LABEL + ipv4(ROCE_UDP)), protocol=47)),
    "vxlan in erspan": ethernet(
        ipv4(
            gre(
                0x88BE,
                ERSPAN_2 + ethernet(ipv4(udp(VXLAN + INNER, dport=4789))),
                0x1000,
                bytes(4),
            ),
            protocol=47,
        )
    ),
    "mrc": ethernet(ipv6(udp(bth(5, opcode=0xC5) + PAYLOAD)), 0x86DD),
}
TOO_DEEP = {  # the decoder goes deeper
    "nine labels": ethernet(LABEL * 8 + LAST_LABEL + ipv4(ROCE_UDP), 0x8847),
    "five headers": ethernet(
        ipv4(ipv4(ipv4(ipv4(ipv4(ROCE_UDP), protocol=4), protocol=4), protocol=4), protocol=4)
    ),
}
OTHER = {
    "another port": ethernet(ipv4(udp(PAYLOAD, dport=4790))),
    "tcp": ethernet(ipv4(PAYLOAD, protocol=6)),
    "arp": ethernet(bytes(46), 0x0806),
    "ipv4 later fragment": ethernet(ipv4(ROCE_UDP)[:6] + b"\x00\x10" + ipv4(ROCE_UDP)[8:]),
    "ipv6 later fragment": ethernet(
        ipv6(b"\x11\0\0\x10" + bytes(4) + ROCE_UDP, next_header=44), 0x86DD
    ),
    "ipv4 header of 16 bytes": ethernet(b"\x44" + ipv4(ROCE_UDP)[1:]),
    "gre with routing": ethernet(ipv4(gre(0x0800, ipv4(ROCE_UDP), 0x4000), protocol=47)),
    "gre of something": ethernet(ipv4(gre(0x1234, ipv4(ROCE_UDP)), protocol=47)),
    "vxlan without network": ethernet(ipv4(udp(bytes(8) + INNER, dport=4789))),
    "geneve's control message": ethernet(
        ipv4(udp(b"\0\x80\x65\x58" + bytes(4) + INNER, dport=6081))
    ),
    "ultra ethernet": ethernet(ipv4(udp(PAYLOAD, dport=4793))),
}
SHORT = {
    "one byte of IP": ethernet(b"\x45", 0x0800),
    "no BTH": ethernet(ipv4(udp(bytes(11)))),
    "cut in IPv6": ethernet(ipv6(ROCE_UDP)[:39], 0x86DD),
    "cut tag": ethernet(b"\0\1\x08", 0x8100),
}


@pytest.fixture(scope="module")
def runs(live_capture: None) -> Iterator[ProbeRuns]:
    with ProbeRuns() as probe:
        yield probe


@pytest.mark.parametrize("hook", ["tc", "xdp"])
@pytest.mark.parametrize("name", PLAIN)
def test_roce_is_found(runs, hook, name):
    frame = PLAIN[name]
    before = time.monotonic_ns()
    record = runs.run(frame, hook)
    assert record is not None
    assert record.data == frame[: 256 if name in LONG else 128]
    assert (record.wire_bytes, record.tap) == (len(frame), TAP)
    assert before <= record.time_ns <= time.monotonic_ns()


@pytest.mark.parametrize("hook", ["tc", "xdp"])
@pytest.mark.parametrize("name", ENCAPSULATED)
def test_encapsulated_roce_is_found_and_kept_longer(runs, hook, name):
    record = runs.run(ENCAPSULATED[name], hook)
    assert record is not None
    assert record.data == ENCAPSULATED[name][:256]
    assert record.wire_bytes == len(ENCAPSULATED[name])


@pytest.mark.parametrize("hook", ["tc", "xdp"])
@pytest.mark.parametrize("name", [*OTHER, *TOO_DEEP])
def test_other_frames_are_not_exported(runs, hook, name):
    before = runs.loss()
    assert runs.run((OTHER | TOO_DEEP)[name], hook) is None
    seen = runs.loss() - before
    assert (seen.seen, seen.matched, seen.too_short) == (1, 0, 0)
    assert seen.ultra_ethernet == (name == "ultra ethernet")


@pytest.mark.parametrize("name", SHORT)
def test_short_frames_are_counted(runs, name):
    before = runs.loss()
    assert runs.run(SHORT[name], "xdp") is None  # BPF_PROG_TEST_RUN makes no such skb
    seen = runs.loss() - before
    assert (seen.seen, seen.matched, seen.too_short) == (1, 0, 1)


@pytest.mark.parametrize("hook", ["tc", "xdp"])
def test_every_length(runs, hook):
    frame = ethernet(ipv4(ROCE_UDP))
    for length in range(14 + 20 + 8 + 12, 162):
        record = runs.run(frame[:length], hook)
        assert record is not None
        assert record.data == frame[: min(length, 128)]


def test_mirror_can_be_left_out(live_capture):
    with ProbeRuns(mirror=False) as probe:
        assert probe.run(ENCAPSULATED["erspan II"]) is None
        assert probe.run(ENCAPSULATED["srv6"]) is not None


def test_ports(live_capture):
    with ProbeRuns(udp_ports=(5000, 4791)) as probe:
        for port, exported in ((5000, True), (4791, True), (4790, False)):
            frame = ethernet(ipv4(udp(bth(1), dport=port)))
            assert (probe.run(frame) is not None) == exported


@given(
    start=st.sampled_from([*PLAIN.values(), *OTHER.values()]),
    changes=st.lists(st.tuples(st.integers(12, 120), st.integers(0, 255)), max_size=4),
    cut=st.integers(15, 300),
)
def test_probe_and_decoder_agree(runs, start, changes, cut):
    """What the decoder takes for RoCE, the probe exports; the reverse needs the lengths too."""
    frame = bytearray(start[:cut])
    for at, value in changes:
        if at < len(frame):
            frame[at] = value
    dec = decoder()
    dec.decode(batch([bytes(frame)], wire=[len(start)]))
    outcomes = dec.counters.arrays.outcomes[0]
    decoded = bool(outcomes[ROCE])
    for hook in ("tc", "xdp"):
        try:
            record = runs.run(bytes(frame), hook)
        except OSError:  # BPF_PROG_TEST_RUN makes no skb without whole IP headers
            assert hook == "tc" and not decoded
            continue
        if decoded:
            assert record is not None
        if record is not None:
            assert record.data in (bytes(frame[:128]), bytes(frame[:256]))


FILTERED = [
    roce(1),
    roce(0xFFFFFF, qp=0x1234, opcode=0x81),
    roce(7, qp=0xABCDEF, opcode=0x11),
    ethernet(ipv4(udp(bth(9), sport=1234), "192.168.3.4", "10.9.8.7")),
    ethernet(ipv6(udp(bth(10, opcode=0x0C))), 0x86DD),
    ethernet(ipv6(udp(bth(11), sport=777), "2001:db8::5", "2001:db8:1::6"), 0x86DD),
    ethernet(ipv6(bth(5) + PAYLOAD, next_header=0x1B), 0x8915),
]
FILTERS = [
    "ip.src == 10.0.0.1",
    "ip.src == 192.168.0.0/16",
    "not ip.src == 10.0.0.0/8",
    "addr == 10.9.8.7 or addr == 2001:db8::/32",
    "ipv6.dst == fd00::2",
    "ipv6.addr != fd00::2",
    "dst in {10.0.0.2, 2001:db8:1::6}",
    "qp == 0x1234",
    "infiniband.bth.destqp in {0x10..0x20, 0xabcdef}",
    "psn >= 9 and psn < 0xffffff",
    "cnp",
    "not cnp",
    "opcode == RC_ACK",
    "opcode == READ",
    "opcode in {0x04, 0x11..0x20}",
    "opcode != 4",
    "transport == CNP",
    "sport == 777 or udp.srcport < 2000",
    "udp.port == 4791",
    "dscp == 0 and ecn == 2",
    "ip.dsfield.ecn != 2",
    "ipv6.flow == 0x12345",
    "ipv6",
    "ip.addr",
    "(qp == 0x11 and not ipv6) or psn == 10",
    "fecn or becn or infiniband.bth.a == 1",
]


@pytest.mark.parametrize("text", first(8, FILTERS))
def test_filter_in_the_kernel_is_the_analyzers(live_capture, text):
    dec = decoder()
    table = dec.decode(batch(FILTERED))
    assert len(table) == len(FILTERED)
    wanted = Filter(text).mask(table, dec.registry).tolist()
    with ProbeRuns(condition=c_condition(text)) as probe:
        assert [probe.run(frame) is not None for frame in FILTERED] == wanted
        loss = probe.loss()
    assert loss.exported == sum(wanted)
    assert loss.filtered == len(FILTERED) - sum(wanted)
    assert loss.matched == len(FILTERED)


def sampled(source: str, destination: str, qp: int, psn: int, one_in: int) -> bool:
    """The twin of in_sample."""
    mask = (1 << 64) - 1
    h = 0
    values = ipaddress.ip_address(source).packed + ipaddress.ip_address(destination).packed
    words = [int.from_bytes(values[i : i + 8], "big") for i in range(0, len(values), 8)]
    for value in (*words, qp << 32 | psn):
        h = (h ^ value) * 0x9E3779B97F4A7C15 & mask
        h ^= h >> 32
    return ((h & 0xFFFFFFFF) * one_in) >> 32 == 0


@pytest.mark.parametrize("version", [4, 6])
def test_sampling_is_decided_by_flow_and_psn(live_capture, version):
    chosen: dict[str, list[int]] = {"tc": [], "xdp": []}
    source, destination = ("10.0.0.1", "10.0.0.2") if version == 4 else ("fd00::1", "fd00::2")
    with ProbeRuns(sample=8) as probe:
        for psn in range(2000):
            packet = udp(bth(psn, qp=0x77))
            frame = ethernet(ipv4(packet)) if version == 4 else ethernet(ipv6(packet), 0x86DD)
            for hook, psns in chosen.items():
                if probe.run(frame, hook) is not None:
                    psns.append(psn)
        loss = probe.loss()
    expected = [p for p in range(2000) if sampled(source, destination, 0x77, p, 8)]
    assert chosen["tc"] == chosen["xdp"] == expected
    assert 200 <= len(expected) <= 300
    assert loss.sampled_out == 2 * (2000 - len(expected))


def test_ring_full_is_counted(live_capture):
    with ProbeRuns() as probe:
        count = 20_000
        run_program(probe.programs["xdp"], roce(1), repeat=count)
        loss = probe.loss()
        full = sum(ring.head > 0 for ring in probe.rings)
    assert loss.matched == count
    room = ((1 << 20) - LARGEST_RECORD) // (RECORD_HEADER.itemsize + 128) + 1
    assert loss.exported == room * full
    assert loss.exported + loss.ring_full == count
    assert loss.ring_full > 0


@pytest.mark.parametrize(
    ("structure", "dtype"),
    [("record_header", RECORD_HEADER), ("loss", LOSS), ("ring", ring_layout(4))],
)
def test_layouts_are_those_of_the_c_source(live_capture, structure, dtype):
    bcc = import_bcc()
    text = (
        source_text(ProgramOptions(), RingMaps(0, 0, 0, 1 << 20, 4))
        + f"\nBPF_ARRAY(layout, struct {structure}, 1);\n"
    )
    with stub_headers():
        module = bcc.BPF(text=text.encode(), cflags=["-Wno-everything"])
        leaf = module["layout"].Leaf
        module.cleanup()
    assert ctypes.sizeof(leaf) == dtype.itemsize
    fields = {
        name: (getattr(leaf, name).offset, getattr(leaf, name).size) for name, *_ in leaf._fields_
    }
    assert fields == {
        name: (offset, field.itemsize) for name, (field, offset) in dtype.fields.items()
    }
    assert all(field.base.kind == "u" or field.base == LOSS for field, _ in dtype.fields.values())
    assert np.dtype(dtype).isalignedstruct or dtype.alignment == 1


# Values in files of the cache: whole, or not there.

VALUE = {"probe": b"\0\1", "more": [1, 2.5, "text", None, (True,)]}


def test_a_value_comes_back(tmp_path: Path) -> None:
    path = str(tmp_path / "a.code")
    for value in (VALUE, "another"):
        store(value, path)
        assert stored(path) == value
    assert os.listdir(tmp_path) == ["a.code"]


def test_what_is_cut_or_changed_anywhere_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "a.code"
    store(VALUE, str(path))
    sound = path.read_bytes()
    for at in range(len(sound)):
        path.write_bytes(sound[:at])
        assert stored(str(path)) is None
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x10]) + sound[at + 1 :])
        assert stored(str(path)) is None


def test_without_a_folder_nothing_is_written_or_read(tmp_path: Path) -> None:
    path = str(tmp_path / "none" / "a.code")
    store(VALUE, path)
    assert stored(path) is None
    assert not os.listdir(tmp_path)


FULL = """
import os, sys
from rocescope.probes.program.compile import store, stored
folder = sys.argv[1] + "/kernel"
os.mkdir(folder)
for name in ("a", "b"):
    store("x" * 100_000, f"{folder}/{name}")
    assert stored(f"{folder}/{name}") is None
assert os.listdir(folder) == []
"""


@pytest.mark.usefixtures("root")
def test_a_full_disk_is_said_once_and_leaves_nothing(
    need_tool: Callable[[str], str], tmp_path: Path
) -> None:
    mount = f"mount -t tmpfs -o size=16k,mode=0700 none {tmp_path}"
    line = [need_tool("unshare"), "-m", "sh", "-c", f'{mount}; "$@"', "sh", sys.executable]
    done = subprocess.run([*line, "-c", FULL, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        f"rocescope: compiled probes are not cached in {tmp_path}: no space left\n"
    )
