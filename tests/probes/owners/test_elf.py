"""The ELF reader against readelf, and on damaged files."""

import contextlib
import os
import re
import struct
import subprocess
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.probes.owners import nldev
from rocescope.probes.owners.elf import ElfError, defaults, exported_functions, functions_of, opened

# The ELF reader against readelf, and on damaged files.


def by_readelf(path):
    """(name, version, default, address) of exported functions as readelf lists them."""
    text = subprocess.run(
        ["readelf", "--dyn-syms", "-W", path], capture_output=True, text=True
    ).stdout
    found = set()
    for line in text.splitlines():
        words = line.split()
        if len(words) < 8 or words[3] not in ("FUNC", "IFUNC") or words[6] == "UND":
            continue
        if words[4] not in ("GLOBAL", "WEAK"):
            continue
        name, mark, version = re.fullmatch(r"([^@]+)(@@?)?(.*)", words[7]).groups()
        found.add((name, version or None, mark != "@", int(words[1], 16)))
    return found


@pytest.mark.parametrize("library", ["libibverbs", "libc"])
def test_functions_are_those_of_readelf(library, libibverbs, need_tool):
    need_tool("readelf"), need_tool("objdump")
    path = libibverbs if library == "libibverbs" else "/lib/x86_64-linux-gnu/libc.so.6"
    expected = by_readelf(path)
    assert len(expected) > 100
    symbols = exported_functions(path)
    assert {(s.name, s.version, s.is_default, s.address) for s in symbols} == expected
    code = Path(path).read_bytes()
    for symbol in symbols[:: len(symbols) // 20]:
        address = f"0x{symbol.address:x}"
        command = ["objdump", "-d", "--start-address", address, "--no-addresses", path]
        command += ["--stop-address", hex(symbol.address + 4)]
        text = subprocess.run(command, capture_output=True, text=True).stdout
        (shown, *_) = re.findall(r"^\s+((?:[0-9a-f]{2} )+)", text, re.MULTILINE)
        assert code[symbol.file_offset :].startswith(bytes.fromhex(shown)), symbol


def test_the_default_version_is_not_the_old_one(libibverbs):
    found = [s for s in exported_functions(libibverbs) if s.name == "ibv_create_qp"]
    assert {s.version for s in found} == {"IBVERBS_1.0", "IBVERBS_1.1"}
    assert defaults(exported_functions(libibverbs))["ibv_create_qp"].version == "IBVERBS_1.1"


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF", b"#!/bin/sh\n" * 20, b"\x7fELF\x01" + bytes(99)]
)
def test_what_is_no_library(tmp_path, content):
    path = tmp_path / "no.so"
    path.write_bytes(content)
    with pytest.raises(ElfError):
        exported_functions(path)


@given(st.data())
def test_damaged_libraries_never_raise_anything_else(tmp_path_factory, libibverbs, data):
    content = bytearray(Path(libibverbs).read_bytes())
    header = st.integers(0, 64) | st.integers(len(content) - 64 * 40, len(content) - 1)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(header)] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    path = tmp_path_factory.mktemp("elf") / "damaged.so"
    path.write_bytes(content[:cut] if data.draw(st.booleans()) else content)
    with contextlib.suppress(ElfError):
        exported_functions(path)


def library(symbols=0, strings_bytes=16, string=b"", sections=2, segments=1, names=3):
    """The head of a library that claims so many symbols; `names` is the kind of its section 1."""
    head = struct.pack(
        "<4sBBB9xHHIQQQIHHHHHH",
        *(b"\x7fELF", 2, 1, 1, 3, 62, 1, 0, 64, 256, 0, 64, 56, segments, 64, sections, 0),
    )
    symbol = struct.pack("<IBBHQQ", 0, 0x12, 0, 1, 64, 0)
    at = 4096
    section = "<IIQQQQIIQQ"
    dynsym = struct.pack(section, 0, 11, 0, 0, at, symbols * 24, 1, 0, 0, 24)
    dynstr = struct.pack(section, 0, names, 0, 0, at + symbols * 24, strings_bytes, 0, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 1 << 40, 1 << 40, 4096)
    data = head.ljust(64, b"\0") + segment
    data = data.ljust(256, b"\0") + dynsym + dynstr
    return data.ljust(at, b"\0") + symbol * min(symbols, 100) + string


def most_memory_of(work):
    tracemalloc.start()
    try:
        with contextlib.suppress(ElfError):
            work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("claims", "size"),
    [
        ({"symbols": 1 << 40}, 64 << 30),  # a symbol table of terabytes
        ({"symbols": 60_000, "strings_bytes": 1 << 40}, 64 << 30),
        ({"symbols": 40, "strings_bytes": 20 << 20, "string": b"a" * (20 << 20)}, None),
        ({"sections": 65_535}, 64 << 30),
        ({"segments": 65_535, "symbols": 60_000}, 64 << 30),
        ({"names": 5, "string": b"\xff" * 4096}, 64 << 30),  # a hash table of 4,294,967,295 buckets
    ],
)
def test_work_is_bounded_whatever_the_file_claims(tmp_path, claims, size):
    """A sparse file of 64 GB, symbols with names of 20 MB each, and tables without an end."""
    path = tmp_path / "libibverbs.so.1"
    path.write_bytes(library(**claims))
    if size is not None:
        os.truncate(path, size)
    assert most_memory_of(lambda: exported_functions(path)) < 64 << 20
    with pytest.raises(
        ElfError, match=r"^(with too many sections or symbols|cut short or damaged)$"
    ):
        exported_functions(path)


def test_a_library_that_is_truncated_is_damaged(tmp_path, libibverbs):
    path = tmp_path / "libibverbs.so.1"
    path.write_bytes(Path(libibverbs).read_bytes())
    with opened(path) as handle:
        assert functions_of(handle)
        os.truncate(path, 4096)
        with pytest.raises(ElfError, match="damaged"):
            functions_of(handle)


def test_a_pipe_under_the_name_of_the_library_is_not_waited_for(tmp_path):
    path = tmp_path / "libibverbs.so.1"
    os.mkfifo(path)
    with pytest.raises(ElfError, match="not a regular file"):
        exported_functions(path)


# Answers of the kernel's RDMA netlink, crafted after include/uapi/rdma/rdma_netlink.h.

NESTED = 0x8000
HEADER = Path("/usr/include/rdma/rdma_netlink.h")


def attribute(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def u32(kind, value):
    return attribute(kind, struct.pack("=I", value))


def u8(kind, value):
    return attribute(kind, bytes([value]))


def message(operation, payload, kind=5):
    return struct.pack("=IHHII", 16 + len(payload), kind << 10 | operation, 2, 1, 99) + payload


DONE = struct.pack("=IHHIIi", 20, 3, 2, 1, 99, 0)
DEVICE = u32(1, 4) + attribute(2, b"mlx5_2\0")
CONNECTED = u32(3, 1) + u32(21, 0x11) + u32(22, 0x22) + u32(23, 5) + u32(24, 6)
CONNECTED += u8(25, 0) + u8(26, 2) + u8(27, 3) + u32(28, os.getpid())
KERNELS = u32(3, 1) + u32(21, 1) + u32(24, 7) + u8(26, 1) + u8(27, 3) + attribute(29, b"ib_core\0")


def table(*entries, entry=20 | NESTED):
    return DEVICE + attribute(19 | NESTED, b"".join(attribute(entry, e) for e in entries))


def test_devices():
    other = u32(1, 5) + attribute(2, b"rxe0\0")
    answer = message(1, DEVICE) + message(1, other) + message(1, attribute(2, b"no index\0"))
    assert nldev.devices(answer + DONE) == [(4, "mlx5_2"), (5, "rxe0")]


def test_queue_pairs():
    answer = message(10, table(KERNELS, CONNECTED)) + message(10, table(u32(21, 9) + u8(27, 77)))
    kernels, connected, odd = nldev.queue_pairs(answer + DONE, "mlx5_2")
    assert (kernels.local_qp, kernels.type, kernels.pid, kernels.command) == (
        *(1, "GSI", None, "ib_core"),
    )
    assert kernels.remote_qp is None
    assert (connected.device, connected.port, connected.type) == ("mlx5_2", 1, "RC")
    assert (connected.local_qp, connected.remote_qp) == (0x11, 0x22)
    assert (connected.rq_psn, connected.sq_psn, connected.state) == (5, 6, "RTS")
    assert connected.pid == os.getpid()
    assert connected.command == Path("/proc/self/comm").read_text().strip()
    assert (odd.local_qp, odd.type, odd.state, odd.pid) == (9, "?", "?", None)


def test_what_is_not_the_answer_is_passed_over():
    good = message(10, table(CONNECTED))
    assert nldev.queue_pairs(message(10, table(CONNECTED), kind=2), "x") == []
    assert nldev.queue_pairs(message(10, table(u32(22, 5))), "x") == []
    assert nldev.queue_pairs(message(10, table(CONNECTED, entry=7)), "x") == []
    for cut in range(len(good)):
        assert len(nldev.queue_pairs(good[:cut], "x")) <= 1


def counter(*queue_pairs, **values):
    pairs = b"".join(attribute(20 | NESTED, u32(21, qp)) for qp in queue_pairs)
    entries = b"".join(
        attribute(
            81 | NESTED,
            attribute(82, name.encode() + b"\0") + attribute(83, struct.pack("=Q", value)),
        )
        for name, value in values.items()
    )
    inner = u32(3, 1) + u32(79, 9) + u32(28, 4711) + attribute(19 | NESTED, pairs)
    return inner + attribute(80 | NESTED, entries)


def counters_of(*entries):
    return DEVICE + attribute(77 | NESTED, b"".join(attribute(78 | NESTED, e) for e in entries))


def test_counters_of_queue_pairs():
    several = counter(0x11, 0x12, out_of_sequence=5, rnr_nak_retry_err=1 << 40)
    answer = message(17, counters_of(several, counter(), counter(0x13))) + DONE
    both, without = nldev.counters(answer, "mlx5_2")
    assert both.queue_pairs == (0x11, 0x12) and (both.device, both.port) == ("mlx5_2", 1)
    assert both.values == {"out_of_sequence": 5, "rnr_nak_retry_err": 1 << 40}
    assert both.pid == 4711
    assert without.queue_pairs == (0x13,) and without.values == {}
    for cut in range(len(answer)):
        assert len(nldev.counters(answer[:cut], "x")) <= 2


def test_counters_of_this_kernel():
    found, reason = nldev.dump_counters()
    assert (reason is None) == bool(found)


def test_this_kernel():
    rows, reason = nldev.dump_queue_pairs()
    assert reason is None or "NETLINK_RDMA" in reason or "table of queue pairs" in reason
    assert reason is None or rows == []


def test_numbers_are_those_of_the_header(unavailable):
    if not HEADER.exists():
        unavailable("needs rdma/rdma_netlink.h: apt install linux-libc-dev")
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    body = re.search(r"enum rdma_nldev_attr \{(.*?)\}", text, re.DOTALL)[1]
    names = [name.strip() for name in body.split(",") if name.strip() and "=" not in name]
    number = {name.removeprefix("RDMA_NLDEV_ATTR_"): i for i, name in enumerate(names)}
    for name, value in (
        *(("DEV_INDEX", 1), ("DEV_NAME", 2), ("PORT_INDEX", 3), ("RES_QP", 19)),
        *(("RES_QP_ENTRY", 20), ("RES_LQPN", 21), ("RES_RQPN", 22), ("RES_RQ_PSN", 23)),
        *(("RES_SQ_PSN", 24), ("RES_TYPE", 26), ("RES_STATE", 27), ("RES_PID", 28)),
        *(("RES_KERN_NAME", 29), ("STAT_RES", 75), ("STAT_COUNTER", 77)),
        *(("STAT_COUNTER_ENTRY", 78), ("STAT_HWCOUNTERS", 80), ("STAT_HWCOUNTER_ENTRY", 81)),
        *(("STAT_HWCOUNTER_ENTRY_NAME", 82), ("STAT_HWCOUNTER_ENTRY_VALUE", 83)),
    ):
        assert number[name] == value
