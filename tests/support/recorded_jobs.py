"""What jobs leave beside packets: dumps of PyTorch's flight recorder, lines of NCCL Inspector.

The pickle is written as torch::jit::Pickler does: protocol 2, texts as BINUNICODE that are written
once and then read from memory, integers beyond 32 bits as LONG1 of eight bytes, lists and
dictionaries that are filled after a mark.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

START_NS = 1_780_000_000_000_000_000
STEP_NS = 27_000_000


def torch_pickle(value: object) -> bytes:
    """A value as PyTorch's C++ pickler writes it."""
    pickler = _Pickler()
    pickler.push(value)
    return b"\x80\x02" + bytes(pickler.out) + b"."


class _Pickler:
    def __init__(self) -> None:
        self.out = bytearray()
        self._texts: dict[str, int] = {}

    def push(self, value: object) -> None:
        match value:
            case None:
                self.out += b"N"
            case bool():
                self.out += b"\x88" if value else b"\x89"
            case int() if 0 <= value < 1 << 8:
                self.out += struct.pack("<cB", b"K", value)
            case int() if 0 <= value < 1 << 16:
                self.out += struct.pack("<cH", b"M", value)
            case int() if -(1 << 31) <= value < 1 << 31:
                self.out += struct.pack("<ci", b"J", value)
            case int():
                self.out += b"\x8a\x08" + struct.pack("<q", value)
            case float():
                self.out += struct.pack(">cd", b"G", value)
            case str():
                self._text(value)
            case tuple():
                self.out += b"("
                for member in value:
                    self.push(member)
                self.out += b"t"
            case list():
                self.out += b"]("
                for member in value:
                    self.push(member)
                self.out += b"e"
            case dict():
                self.out += b"}("
                for key, member in value.items():
                    self.push(key)
                    self.push(member)
                self.out += b"u"
            case _:
                raise TypeError(value)

    def _text(self, text: str) -> None:
        if text not in self._texts:
            data = text.encode()
            self.out += b"X" + struct.pack("<I", len(data)) + data
            place = self._texts[text] = len(self._texts)
            self.out += struct.pack("<cB", b"q", place) if place < 256 else _long(b"r", place)
        else:
            place = self._texts[text]
            self.out += struct.pack("<cB", b"h", place) if place < 256 else _long(b"j", place)


def _long(code: bytes, place: int) -> bytes:
    return struct.pack("<cI", code, place)


def entry(
    sequence: int,
    *,
    record_id: int | None = None,
    name: str = "nccl:all_reduce",
    state: str = "completed",
    sizes: Sequence[Sequence[int]] = ((1 << 20,),),
    outputs: Sequence[Sequence[int]] | None = None,
    dtype: str = "Float",
    group: tuple[str, str] = ("0", "default_pg"),
    pg_id: int = 0,
    created_ns: int | None = None,
    started_ns: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    """One entry of a dump, as version 2.10 has it."""
    created = START_NS + sequence * STEP_NS if created_ns is None else created_ns
    completed = created + 5_000_000 if state == "completed" else None
    outputs = sizes if outputs is None else outputs
    return {
        "frames": [{"name": "train", "filename": "train.py", "line": 71}],
        "record_id": sequence - 1 if record_id is None else record_id,
        "pg_id": pg_id,
        "process_group": group,
        "thread_name": "pt_main_thread",
        "thread_id": "139832",
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "op_id": sequence,
        "profiling_name": name,
        "time_created_ns": created,
        "input_sizes": [list(size) for size in sizes],
        "input_dtypes": [dtype] * len(sizes),
        "output_sizes": [list(size) for size in outputs],
        "output_dtypes": [dtype] * len(outputs),
        "state": state,
        "time_discovered_started_ns": started_ns,
        "time_discovered_completed_ns": completed,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": False,
        **more,
    }


def dump(
    entries: Sequence[dict[str, Any]],
    ranks: Sequence[int] = range(4),
    *,
    version: str = "2.10",
    last_enqueued: int | None = None,
    groups: dict[str, tuple[str, Sequence[int]]] | None = None,
) -> dict[str, Any]:
    """A dump of one process. groups: description and ranks by name."""
    groups = {"0": ("default_pg", ranks)} if groups is None else groups
    last = max((e["collective_seq_id"] for e in entries), default=-1)
    status = last if last_enqueued is None else last_enqueued
    return {
        "version": version,
        "pg_config": {
            name: {"name": name, "desc": text, "ranks": str(list(members))}
            for name, (text, members) in groups.items()
        },
        "comm_lib_version": "2.27.5",
        "pg_status": {
            "0": {
                "last_enqueued_collective": status,
                "last_started_collective": -1,
                "last_completed_collective": last,
            }
        },
        "entries": list(entries),
    }


def as_json(value: dict[str, Any]) -> bytes:
    """A dump as dump_fr_trace_json writes it: no frames, 0 for no time, numbers of status as
    text, no `entries` without one."""
    entries = [
        {key: 0 if member is None else member for key, member in e.items() if key != "frames"}
        for e in value["entries"]
    ]
    status = {
        id: {key: str(number) for key, number in group.items()}
        for id, group in value["pg_status"].items()
    }
    return json.dumps(
        {**value, "pg_status": status, "entries": entries}
        if entries
        else {key: member for key, member in value.items() if key != "entries"}
    ).encode()


def write_dumps(folder: Path, by_rank: dict[int, dict[str, Any]]) -> Path:
    """Pickles of ranks in a folder, with PyTorch's names."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, value in by_rank.items():
        (folder / f"nccl_trace_rank_{rank}").write_bytes(torch_pickle(value))
    return folder


def header(rank: int, size: int = 4, comm: str = "0x7f8c496ae9f661") -> dict[str, Any]:
    """The header of a line of NCCL Inspector."""
    return {"id": comm, "rank": rank, "n_ranks": size, "nnodes": size}


def metadata(host: str, pid: int, time_us: int, version: str = "v4.0") -> dict[str, Any]:
    """The metadata of a line of NCCL Inspector."""
    return {
        "inspector_output_format_version": version,
        "git_rev": "",
        "rec_mechanism": "nccl_profiler_interface",
        "dump_timestamp_us": time_us,
        "hostname": host,
        "pid": pid,
    }


def collective(
    sequence: int, execution_us: int, coll: str = "AllReduce", size: int = 1 << 22, **more: Any
) -> dict[str, Any]:
    """`coll_perf` of a line of NCCL Inspector."""
    return {
        "coll": coll,
        "coll_sn": sequence,
        "coll_msg_size_bytes": size,
        "coll_exec_time_us": execution_us,
        "coll_timing_source": "kernel_gpu",
        "coll_algobw_gbs": 277.2,
        "coll_busbw_gbs": 485.1,
        **more,
    }
