"""From the C source to loaded programs, one per tap."""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...analyzer.decode.mrc import MRC_UDP_PORT
from ...analyzer.errors import CaptureError
from ...analyzer.wire.bth import ROCE_UDP_PORT
from .. import bpf
from ..rings import CHUNK_BYTES, WIDE_SNAP, RingMaps
from .compile import known_machine_code, load

_HERE = Path(__file__).parent
_SHARED = [_HERE / f"{name}.bpf.h" for name in ("frame", "tunnels", "packet", "hook")]
_RING, _PROBE = _HERE / "ring.bpf.h", _HERE / "rocescope.bpf.c"
_MARK = 0x52435441
_MOVE_IMMEDIATE = 0xB7  # BPF_ALU64 | BPF_MOV | BPF_K
_BUFFER_LENGTH_HELPER = 188


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """Options that are compiled into the probes."""

    snap_bytes: int = 128
    """Bytes kept of each frame; a multiple of 8, at most WIDE_SNAP."""
    udp_ports: tuple[int, ...] = (ROCE_UDP_PORT,)
    mirror: bool = True
    """Also search GRE, ERSPAN, VXLAN, Geneve and MPLS for RoCE."""
    condition: str = "1"
    """C expression over `struct packet *p`: true for packets to export."""
    sample: int = 1
    """Export one packet in N of each flow."""


class Compiled:
    """Machine code of the probes, for these maps."""

    def __init__(self, options: ProgramOptions, maps: RingMaps) -> None:
        text = source_text(options, maps)
        descriptors = (maps.rings, maps.chunks, maps.bell)
        self._code = known_machine_code(text, ("probe_xdp", "probe_tc"), descriptors)

    def load_tc(self, tap: int) -> int:
        """A program for tc and tcx that writes records of this tap; its descriptor."""
        code = marked(self._code["probe_tc"], tap)
        return load(bpf.PROG_SCHED_CLS, code, "rocescope_tc", 0, 0)

    def load_xdp(self, tap: int) -> int:
        """A program for XDP; accepts frames in several buffers if the kernel supports them."""
        code = marked(self._code["probe_xdp"], tap)
        flags = bpf.XDP_HAS_FRAGS if _has_frags() else 0
        return load(bpf.PROG_XDP, code, "rocescope_xdp", flags, bpf.ATTACH_XDP)


def source_text(options: ProgramOptions, maps: RingMaps) -> str:
    """The C source of the exporting probes, preceded by the definitions it needs.

    Maps have their index in place of a descriptor (`known_machine_code`).
    """
    values: dict[str, int | str] = {
        "SNAP": options.snap_bytes,
        "WIDE_SNAP": WIDE_SNAP,
        "RINGS_FD": 0,
        "CHUNKS_FD": 1,
        "BELL_FD": 2,
        "RING_BYTES": f"{maps.ring_bytes}ull",
        "CHUNK_BYTES": f"{min(CHUNK_BYTES, maps.ring_bytes)}ull",
        "TAPS": maps.taps,
        "STRONGLY_ORDERED": int(strongly_ordered()),
        "SAMPLE": options.sample,
    }
    return source_of(definitions(options) | values, _RING, _PROBE)


def definitions(options: ProgramOptions) -> dict[str, int | str]:
    """Definitions that every probe needs."""
    ports = " || ".join(f"(port) == {port}" for port in (*options.udp_ports, MRC_UDP_PORT))
    whole_frame = (
        f"((rs_u64 (*)(void *)){_BUFFER_LENGTH_HELPER})(ctx)" if _has_frags() else "linear"
    )
    return {
        "ROCE_PORT(port)": f"({ports})",
        "MIRROR": int(options.mirror),
        "FILTER(p)": f"({options.condition})",
        "WHOLE_FRAME_BYTES(ctx, linear)": whole_frame,
    }


def source_of(defined: Mapping[str, int | str], *sources: Path) -> str:
    """A probe's C files, preceded by their definitions."""
    lines = [f"#define {macro} {value}\n" for macro, value in defined.items()]
    return "".join(lines + [file.read_text(encoding="utf-8") for file in (*_SHARED, *sources)])


def kernel_version() -> tuple[int, int]:
    """(major, minor) of the running kernel."""
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(c for c in minor if c.isdigit()) or 0)


def strongly_ordered() -> bool:
    """Whether every atomic instruction of this processor keeps order around it."""
    return platform.machine() == "x86_64"


def _has_frags() -> bool:
    return kernel_version() >= (5, 18)


def marked(code: bytes, tap: int) -> bytes:
    """The code with the tap's index instead of the mark."""
    instructions = bytearray(code)
    for at in range(0, len(code), 8):
        if code[at] == _MOVE_IMMEDIATE and struct.unpack_from("<i", code, at + 4)[0] == _MARK:
            struct.pack_into("<i", instructions, at + 4, tap)
            return bytes(instructions)
    raise CaptureError("the compiled probe has no mark for its tap: bcc may be too new")
