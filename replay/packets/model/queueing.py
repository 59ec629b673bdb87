"""Settings of queues: PFC, which pauses, and classes of traffic, which share a link.

PFC is priority flow control (IEEE 802.1Qbb) of switches with a shared buffer.

ACKs, CNPs and trimmed packets have their own queue, which precedes all data. Among the classes
of data those without a weight come first, in their order. The others share the rest by deficit
round robin (Shreedhar, Varghese, SIGCOMM 1995): in its turn a class may send the bytes of its
quantum, in proportion to its weight, and what it saved before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ....analyzer.errors import UsageError
from ....kernels.kernel import Bools, Bytes, Ints, NamedTuple
from .records import Records, layout, table

BUFFER_BYTES_PER_GBPS: Final = 3_200
"""Default buffer of a switch per Gb/s of its ports: 165 MB for 51.2 Tb/s."""
LEAST_BUFFER_PACKETS: Final = 16
"""Per port, at least: the headroom of slow links is in packets, not in time."""
ALPHA: Final = 1 / 8
"""Default of dynamic thresholds."""
PAUSE_BYTES: Final = 64
"""A pause frame."""
QUANTUM_BITS: Final = 512
MOST_QUANTA: Final = 65_535
"""IEEE 802.3, annex 31B, as 802.1Qbb uses it: a pause lasts for up to this many times the
transmission of 512 bits."""
STORM_PS: Final = 200_000_000
"""200 us. Watchdogs of switches wait for 200 ms (Junos: twice a polling interval of 100 ms); a
replay lasts for a thousandth of that."""


@dataclass(frozen=True)
class Pfc:
    """Thresholds of all switches. UsageError names an invalid parameter."""

    shared_bytes: int | None = None
    """Buffer of a switch, headroom included; None: BUFFER_BYTES_PER_GBPS of its ports, and at least
    LEAST_BUFFER_PACKETS for each."""
    alpha: float = ALPHA
    """Dynamic threshold: a port is paused when its bytes exceed alpha times the free shared
    buffer; without effect with xoff_bytes."""
    xoff_bytes: int | None = None
    """Static threshold of a port."""
    xon_bytes: int | None = None
    """A paused port resumes this far below its threshold; None: one full packet."""
    headroom_bytes: int | None = None
    """Per port, for packets that still arrive after the pause; None: what its cable needs, see
    `headroom_needed`."""
    reaction_ps: int = 100_000
    """From the arrival of a pause frame until the sender obeys."""
    quanta: int | None = None
    """Of a pause frame; the switch repeats the frame when half of them have passed. None: a pause
    lasts until the switch ends it, as if the frames were repeated in time."""
    storm_ps: int = STORM_PS
    """A port paused for this long without a break is in a pause storm."""

    def __post_init__(self) -> None:
        if not 1 / 1024 <= self.alpha <= 64:
            raise UsageError(f"alpha must be 1/1024 to 64, not {self.alpha:g}")
        for name in ("shared_bytes", "xoff_bytes", "xon_bytes", "headroom_bytes"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1 << 40:
                raise UsageError(f"{name} must be 0 B to 1 TB, not {value:,}")
        if not 0 <= self.reaction_ps <= 10**9:
            raise UsageError("reaction_ps must be at most 1 ms")
        if self.quanta is not None and not 1 <= self.quanta <= MOST_QUANTA:
            raise UsageError(f"quanta must be 1 to {MOST_QUANTA:,}, not {self.quanta:,}")
        if not 0 < self.storm_ps <= 10**12:
            raise UsageError("storm_ps must be above 0 and at most 1 s")
        if self.xoff_bytes is not None and (self.xon_bytes or 0) > self.xoff_bytes:
            raise UsageError(
                f"xon_bytes ({self.xon_bytes:,} B below the threshold) is above xoff_bytes "
                f"({self.xoff_bytes:,} B)"
            )

    def described(self) -> dict[str, str]:
        """The settings in force."""
        settings = {"lossless": "pfc"}
        if self.xoff_bytes is None:
            settings["alpha"] = f"{self.alpha:g}"
        for name in ("shared_bytes", "xoff_bytes", "xon_bytes", "headroom_bytes"):
            if getattr(self, name) is not None:
                settings[name] = str(getattr(self, name))
        if self.quanta is not None:
            settings["quanta"] = str(self.quanta)
        if self.storm_ps != STORM_PS:
            settings["storm"] = f"{self.storm_ps / 1e6:g}us"
        settings["pause_reaction"] = f"{self.reaction_ps / 1e3:g}ns"
        return settings


@dataclass(frozen=True)
class PauseOutcome:
    """What PFC did in a run, by link and class of data, link * K + class: the sender of the link is
    the port that is paused. int64[L * K]."""

    classes: tuple[str, ...]
    """Names of the K classes."""
    storm_after_ps: int
    """`Pfc.storm_ps`."""
    frames: Ints
    """Pause frames that begin or repeat a pause."""
    storm_ps: Ints
    """Time at which the first pause storm was detected; -1: none."""

    pauses: Ints
    paused_ps: Ints
    longest_ps: Ints
    endless: Bools
    """bool[L * K]: still paused when no event is left; `paused_ps` and `longest_ps` count up to the
    last event."""
    roots: Ints
    """Pauses of other ports that the queue of this link caused."""
    most_headroom: Ints
    headroom: Ints
    needed: Ints
    """Of the port at the end of the link: largest use of its headroom, its size, and what the cable
    needs."""
    no_room: Ints
    """Packets dropped there because the headroom was full."""
    victims: Ints | None
    """Flows that waited for the end of a pause and never used a link that caused pauses; None: not
    counted."""
    victim_flows: int | None
    deadlock: tuple[int, ...]
    """Links that wait for each other in a cycle at the end of an incomplete run, each for
    the next."""
    buffers: Ints
    """int64[S]: shared buffer of each switch, headroom included; 0 without ports."""
    xon_bytes: int
    """A paused port resumes this far below its threshold."""
    may_pass: bool = False
    """Whether events were left at the end, so that such a cycle may be no deadlock."""


def headroom_needed(packet: int, ps_per_byte: float, delay_ps: int, reaction_ps: int) -> int:
    """Bytes that can still arrive at a port after its switch decided to pause it.

    The packet that exceeds the threshold; a packet that the switch is sending, before the pause
    frame; the frame; the cable, twice; the reaction; the packet that the sender has begun; and the
    rest of the first packet that arrives after the decision.
    """
    return int(4 * packet + PAUSE_BYTES + (2 * delay_ps + reaction_ps) / ps_per_byte) + 1


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
        words = [f"weight {self.weight}" if self.weight else "strict"]
        if not self.lossless:
            words.append("lossy")
        if self.alpha is not None:
            words.append(f"alpha {self.alpha:g}")
        if self.xoff_bytes is not None:
            words.append(f"xoff {self.xoff_bytes:,} B")
        if self.dscps:
            words.append(f"DSCP {', '.join(map(str, self.dscps))}")
        return f"{self.name} ({', '.join(words)})"


def classes_of(dscp: Bytes, classes: tuple[TrafficClass, ...]) -> Bytes:
    """uint8: the class of flows with these DSCPs; the first one for a DSCP of no class."""
    of = np.zeros(DSCPS, np.uint8)
    for number, traffic_class in enumerate(classes):
        of[list(traffic_class.dscps)] = number
    class_numbers: Bytes = of[dscp]
    return class_numbers


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
    least = min(
        (traffic_class.weight for traffic_class in classes if traffic_class.weight), default=1
    )
    for number, traffic_class in enumerate(classes):
        rules[number] = -(-packet * traffic_class.weight // least), traffic_class.lossless
    return Classes(queues, table(links, TURN), rules, of_message)
