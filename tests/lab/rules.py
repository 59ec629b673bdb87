"""Faults inside the kernel of a router: BPF programs at its interfaces, each with a counter."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rocescope.probes import bpf
from rocescope.probes.hooks.interfaces import in_namespace
from rocescope.probes.program.compile import load, machine_code

from .topology import Fabric

_SOURCE = Path(__file__).with_name("rule.bpf.c")
_ATTACH_TYPES = {"in": bpf.ATTACH_TCX_INGRESS, "out": bpf.ATTACH_TCX_EGRESS}


@dataclass(frozen=True)
class Rule:
    """What happens to some packets at one interface of a node.

    An incoming packet is captured before the rule, an outgoing packet after it.
    """

    node: str
    interface: str
    direction: Literal["in", "out"]
    condition: str
    """C expression over `struct packet p` of rule.bpf.c."""
    action: str
    """C statement: DROP, MARK_CE, COPY, DAMAGE, or such as `set_dscp(skb, &p, 0)`."""


DROP = "return DROPPED"
MARK_CE = "bpf_skb_ecn_set_ce(skb)"
COPY = "copy(skb)"
DAMAGE = "damage(skb, at + 24)"
"""One bit after the BTH and an AETH: of payload, of other headers, or of the ICRC of an ACK."""


class Attached:
    """A rule in the kernel, off at first; gone when it is closed."""

    def __init__(self, rule: Rule, fabric: Fabric) -> None:
        self._state = bpf.create_map(bpf.MAP_ARRAY, 4, 8, 3, name="lab_state")
        defined = {"STATE_FD": self._state, "CONDITION": rule.condition, "ACTION": rule.action}
        lines = [f"#define {name} {value}\n" for name, value in defined.items()]
        code = machine_code("".join(lines) + _SOURCE.read_text(), ["rule"])["rule"]
        program = load(bpf.PROG_SCHED_CLS, code, "lab_rule")

        def attach() -> int:
            index = socket.if_nametoindex(rule.interface)
            return bpf.create_link(program, index, _ATTACH_TYPES[rule.direction])

        self._link = in_namespace(fabric.name(rule.node), attach)
        os.close(program)

    def turn(self, on: bool) -> None:
        bpf.update(self._state, struct.pack("I", 0), struct.pack("Q", on))

    @property
    def hits(self) -> int:
        """Packets that the rule hit so far."""
        return struct.unpack("Q", bpf.lookup(self._state, struct.pack("I", 1), 8))[0]

    def close(self) -> None:
        os.close(self._link)
        os.close(self._state)
