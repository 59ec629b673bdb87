"""Classes of data: which packets share a queue, and how a link shares its time among the queues.

ACKs, CNPs and trimmed packets have their own queue, which precedes all data. Among the classes
of data those without a weight come first, in their order. The others share the rest by deficit
round robin (Shreedhar, Varghese, SIGCOMM 1995): in its turn a class may send the bytes of its
quantum, in proportion to its weight, and what it saved before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....analyzer.errors import UsageError
from ....kernels.kernel import Bytes
from ....kernels.named import NamedTuple
from .records import Records, layout, table

MOST_CLASSES = 7
"""IEEE 802.1Q has eight priorities; ACKs and CNPs have one of them."""
MOST_WEIGHT = 1000
DSCPS = 64


@dataclass(frozen=True)
class TrafficClass:
    """One class of data. UsageError names an invalid parameter."""

    name: str = "data"
    weight: int = 0
    """Share of the link in deficit round robin; 0: strict priority over all classes with one."""
    lossless: bool = True
    """Whether PFC pauses it; else a queue drops what exceeds its threshold."""
    alpha: float | None = None
    xoff_bytes: int | None = None
    """Threshold of the class, dynamic or static; None: that of PFC. It limits each ingress port of
    a lossless class, each output queue of a lossy class."""
    dscps: tuple[int, ...] = ()
    """The captured flows with these DSCPs have this class."""

    def __post_init__(self) -> None:
        if not self.name or not self.name.replace("-", "").isalnum() or not self.name.isascii():
            raise UsageError(f"a class has a name of letters and digits, not {self.name!r}")
        if not 0 <= self.weight <= MOST_WEIGHT:
            raise UsageError(f"{self.name}: weight must be 0 to {MOST_WEIGHT}, not {self.weight}")
        if self.alpha is not None and self.xoff_bytes is not None:
            raise UsageError(f"{self.name}: alpha cannot be combined with xoff_bytes")
        if self.alpha is not None and not 1 / 1024 <= self.alpha <= 64:
            raise UsageError(f"{self.name}: alpha must be 1/1024 to 64, not {self.alpha:g}")
        if self.xoff_bytes is not None and not 0 <= self.xoff_bytes < 1 << 40:
            raise UsageError(f"{self.name}: xoff_bytes must be 0 B to 1 TB")
        for dscp in self.dscps:
            if not 0 <= dscp < DSCPS:
                raise UsageError(f"{self.name}: dscp must be 0 to {DSCPS - 1}, not {dscp}")

    def described(self) -> str:
        """`background (weight 30, lossy)`."""
        told = [f"weight {self.weight}" if self.weight else "strict"]
        if not self.lossless:
            told.append("lossy")
        if self.alpha is not None:
            told.append(f"alpha {self.alpha:g}")
        if self.xoff_bytes is not None:
            told.append(f"xoff {self.xoff_bytes:,} B")
        if self.dscps:
            told.append(f"DSCP {', '.join(map(str, self.dscps))}")
        return f"{self.name} ({', '.join(told)})"


def classes_of(dscp: Bytes, classes: tuple[TrafficClass, ...]) -> Bytes:
    """uint8: the class of flows with these DSCPs; the first one for a DSCP of no class."""
    of = np.zeros(DSCPS, np.uint8)
    for number, one in enumerate(classes):
        of[list(one.dscps)] = number
    found: Bytes = of[dscp]
    return found


class Queue:
    """Packets of a class that wait at a link."""

    head: int
    """-1 for none, like `tail`."""
    tail: int
    bytes: int
    deficit: int
    """Bytes that the class may send in its turn."""


class Turn:
    """Whose turn it is at a link."""

    turn: int
    """The class."""
    credited: int
    """1 after it got its quantum."""


class Rule:
    """Of a class."""

    quantum: int
    """Bytes, 0 for strict priority."""
    lossless: int
    """1 if PFC pauses it."""


QUEUE, TURN, RULE = layout(Queue), layout(Turn), layout(Rule)


class Classes(NamedTuple):
    """State of all queues of data if there are several classes."""

    queues: Records
    """QUEUE[L * K]"""
    turns: Records
    """TURN[L]"""
    rules: Records
    """RULE[K]"""
    of_message: Bytes
    """uint8[M]: class of the data of each message."""


def new_classes(
    classes: tuple[TrafficClass, ...], links: int, of_message: Bytes, packet: int
) -> Classes:
    """The state before the first packet. packet: wire bytes of the largest packet; every quantum
    covers one. UsageError for messages of a class that does not exist."""
    highest = int(of_message.max(initial=0))
    if highest >= len(classes):
        raise UsageError(f"a flow has class {highest}, but there are {len(classes)}, from 0")
    if len(classes) == 1:  # the rows of the links hold its queues
        links, of_message = 1, np.zeros(1, np.uint8)
    queues = table(links * len(classes), QUEUE)
    queues["head"] = queues["tail"] = -1
    rules = table(len(classes), RULE)
    least = min((one.weight for one in classes if one.weight), default=1)
    for number, one in enumerate(classes):
        rules[number] = -(-packet * one.weight // least), one.lossless
    return Classes(queues, table(links, TURN), rules, of_message)
