"""The counting probes: C source, the table of opcodes, loaded programs."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from ...analyzer.decode.headers.layout import LAYOUT
from ...analyzer.track.state import RESTART_DISTANCE
from ...analyzer.wire import opcodes
from .. import bpf
from ..program.compile import known_machine_code
from ..program.program import Compiled, ProgramOptions, definitions, source_of

_SOURCE = Path(__file__).with_name("counters.bpf.c")
_CLASSES = (
    "KNOWN",
    "REQUEST",
    "READ_REQUEST",
    "RESPONSE_DATA",
    "ACKNOWLEDGE",
    "BEGINS",
    "SEQUENCED",
)


@dataclass(frozen=True, slots=True)
class CounterMaps:
    """Descriptors of the programs' maps, and numbers of sets (powers of two)."""

    table: int
    sets: int
    """Per CPU."""
    order: int
    order_sets: int
    tally: int
    opcodes: int

    @property
    def descriptors(self) -> tuple[int, ...]:
        """In the order of the indices in `counter_source`."""
        return self.table, self.order, self.tally, self.opcodes


class CompiledCounters(Compiled):
    """Machine code of the counting probes, for these maps."""

    def __init__(self, options: ProgramOptions, maps: CounterMaps) -> None:
        text = counter_source(options, maps)
        code = known_machine_code(text, ("count_xdp", "count_tc"), maps.descriptors)
        self._code = {"probe_xdp": code["count_xdp"], "probe_tc": code["count_tc"]}


def counter_source(options: ProgramOptions, maps: CounterMaps) -> str:
    """The C source, preceded by the definitions it needs; maps have their index."""
    values = {
        "TABLE_FD": 0,
        "SETS": maps.sets,
        "ORDER_FD": 1,
        "ORDER_SETS": maps.order_sets,
        "TALLY_FD": 2,
        "OPCODES_FD": 3,
        "RESTART_DISTANCE": RESTART_DISTANCE,
        **{name: int(getattr(opcodes, name)) for name in _CLASSES},
    }
    return source_of(definitions(options) | values, _SOURCE)


def opcode_map() -> int:
    """Descriptor of the array from opcode to its class, header length and AETH offset."""
    fd = bpf.create_map(bpf.MAP_ARRAY, 4, 4, 256, name="rocescope_ops")
    for opcode in range(256):
        layout = int(LAYOUT[opcode])
        header, aeth = layout & 0xFF, layout >> 8 & 0xFF
        value = int(opcodes.OPCODE_CLASS[opcode]) | header << 16 | aeth << 24
        bpf.update(fd, struct.pack("I", opcode), struct.pack("I", value))
    return fd
