"""State of PFC: a row per link and class of data, for the switch at its end and the sender at its
start.

A packet counts from its arrival at a switch until its transmission begins: in the shared buffer
while the bytes of its port are below the threshold, else in the headroom of its port. Its port is
paused as soon as it uses headroom, and resumes when its headroom is empty and its bytes are
`xon_bytes` below the threshold. ACKs and trimmed packets do not count and are never paused.
The pause frame waits for the packet that its switch is sending and takes no capacity. A pause lasts
until the switch ends it, as with switches that repeat their pause frames before the quanta expire;
with `quanta` they do repeat them, and a pause ends when they expire. Packets of a class that is not
lossless count in the shared buffer while their output queue is below its threshold; beyond it they
are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....analyzer.errors import UsageError
from ....kernels.kernel import Bytes, Int32s, Ints, NamedTuple
from .arrays import FabricArrays
from .model import NEVER, Model
from .queueing import (
    BUFFER_BYTES_PER_GBPS,
    LEAST_BUFFER_PACKETS,
    Pfc,
    TrafficClass,
    headroom_needed,
)
from .records import CACHE_LINE, Records, layout, table
from .wheel import Wheel, new_wheel


class PauseRow:
    """Of a link and class of data; the first cache line is what packets need without pauses."""

    shared: int
    """Bytes in the shared buffer."""
    headroom: int
    """Bytes in the headroom."""
    asked: int
    """1 while the switch asks for a pause."""
    paused: int
    """1 while the sender pauses."""
    frame_time: int
    """When the sender obeys the first frame on the way to it (NEVER: none)."""
    switch: int
    limit: int
    """Static threshold (NEVER: dynamic)."""
    alpha: int
    """Of dynamic thresholds, in 2^-20."""
    room: int
    """Headroom of the port."""
    reverse: int
    """Link that carries the frames, -1 for none."""
    since: int
    """Start of the pause, or end of the last one."""
    paused_ps: int
    longest_ps: int
    pauses: int
    no_room: int
    """Packets dropped without room."""
    most_headroom: int
    """Largest use of the headroom."""
    frame_head: int
    """Frames on the way to the sender."""
    frame_tail: int
    roots: int
    """Of the link as an output: pauses for which its queue was the longest that was not paused
    itself."""
    needed: int
    """Headroom that the cable needs."""
    expires: int
    """When the quanta of the pause expire (NEVER)."""
    repeat: int
    """When the switch repeats its frame (NEVER)."""
    frames: int
    """Frames that begin or repeat a pause."""
    storm: int
    """Time of the first pause storm (-1)."""


class Pool:
    """The shared buffer of a switch, in bytes."""

    used: int
    size: int


class PauseRules:
    """The same for all switches; one record."""

    xon: int
    """Bytes below the threshold."""
    reaction: int
    """ps."""
    quanta: int
    """Of a frame, 0 for no end."""
    storm_after: int
    """ps."""
    several: int
    """1 if a link has several rows or timers of its pauses."""


PAUSE_ROW, POOL, PAUSE_RULES = layout(PauseRow, CACHE_LINE), layout(Pool), layout(PauseRules)

# held
HELD, USES = 1, 2
"""Bits of a flow at a link: its packets waited at the end of a pause; it used the link."""

MOST_CELLS = 1 << 26
"""Maximum of links times flows for which victims are counted."""


class Pauses(NamedTuple):
    """State of all links and switches."""

    rows: Records
    pools: Records
    rules: Records
    held: Bytes
    """uint8[L, F]: HELD and USES of each flow, of any class. uint8[1, 1]: not counted."""
    wheel: Wheel
    """The calendar of the driver, in which the frames are events of their link."""


def no_pauses() -> Pauses:
    """The state of a run without PFC."""
    return Pauses(
        table(1, PAUSE_ROW),
        table(1, POOL),
        table(1, PAUSE_RULES),
        np.zeros((1, 1), np.uint8),
        new_wheel(1, 1, 1),
    )


def new_pauses(
    arrays: FabricArrays,
    source: Int32s,
    model: Model,
    packet: int,
    flows: int,
    wheel: Wheel,
    rates: tuple[Ints, Ints],
    names: Sequence[str],
) -> Pauses:
    """The state before the first packet. packet: wire bytes of the largest packet. rates: ps
    per byte of each link, scaled by 2^20, least and most during the run; the headroom is enough for
    both. names: of the switches. UsageError for thresholds and headroom that do not fit a switch.
    """
    pfc = model.pfc
    assert pfc is not None
    links, classes = len(arrays.target), len(model.classes)
    rows = table(links, PAUSE_ROW)
    rows["frame_head"] = rows["frame_tail"] = rows["storm"] = -1
    rows["frame_time"] = rows["expires"] = rows["repeat"] = NEVER
    rows["switch"] = arrays.target
    rows["reverse"] = reverse_links(source, arrays.target)
    fastest, slowest = (traffic_class / (1 << 20) for traffic_class in rates)
    into = np.flatnonzero(arrays.target < arrays.switches)
    for link in into.tolist():
        delay = int(arrays.delay_ps[link])
        back = int(rows["reverse"][link])
        delay = max(delay, int(arrays.delay_ps[back]) if back >= 0 else 0)
        slow = slowest[back] / fastest[link] if back >= 0 else 1.0
        needed = headroom_needed(packet, float(fastest[link]), delay, pfc.reaction_ps) + int(
            max(0.0, slow - 1.0) * (packet + 64)
        )
        rows["needed"][link] = needed
        rows["room"][link] = needed if pfc.headroom_bytes is None else pfc.headroom_bytes
    of_links, rows = rows, table(links * classes, PAUSE_ROW)
    rows[:] = np.repeat(of_links, classes)
    for number, traffic_class in enumerate(model.classes):
        of_class = rows[number::classes]
        limit, alpha = _threshold_of(traffic_class, pfc)
        of_class["limit"], of_class["alpha"] = (
            NEVER if limit is None else limit,
            round(alpha * (1 << 20)),
        )
        if not traffic_class.lossless:
            of_class["room"] = of_class["needed"] = 0
    pools = table(arrays.switches, POOL)
    rooms = np.zeros(arrays.switches, np.int64)
    np.add.at(rooms, arrays.target[into], rows["room"].reshape(links, classes).sum(1)[into])
    lossless = sum(traffic_class.lossless for traffic_class in model.classes)
    for switch in range(arrays.switches):
        ports = into[arrays.target[into] == switch]
        if not len(ports):
            continue
        total = pfc.shared_bytes
        if total is None:
            per_byte = arrays.ps_per_byte_q20[ports] / (1 << 20)
            total = int((8_000 / per_byte).sum() * BUFFER_BYTES_PER_GBPS)
            total = max(total, LEAST_BUFFER_PACKETS * packet * len(ports))
        room = int(rooms[switch])
        free = total - room
        each = f"{len(ports):,} ports" + (f" and {lossless} classes" if lossless > 1 else "")
        if free < packet:
            enough = 2 * -(-(int(rooms.max()) + packet) // 1_000_000)
            lower = "" if pfc.headroom_bytes is None else ", or a smaller headroom=..."
            raise UsageError(
                f"PFC: {names[switch]}: a shared buffer of {total:,} B is too small: the headroom "
                f"of {each}, with links of up to {int(arrays.delay_ps[ports].max()) / 1e6:g} us, "
                f"takes {room:,} B: use a larger one (--lossless pfc:buffer={enough}MB){lower}"
            )
        if (model.ecn_low_bytes or 0) > free:
            raise UsageError(
                f"PFC: {names[switch]}: Kmin of --model ecn= ({model.ecn_low_bytes:,} B) exceeds "
                f"the shared buffer, {free:,} B without the headroom of {each}: nothing would be "
                "marked; lower ecn=, or enlarge --lossless pfc:buffer=..."
            )
        if (pfc.xon_bytes or 0) > free:
            raise UsageError(
                f"PFC: xon ({pfc.xon_bytes:,} B below the threshold) exceeds the shared buffer, "
                f"{free:,} B without the headroom of {each}: --lossless pfc:xon=... or buffer=..."
            )
        for traffic_class in model.classes:
            limit, _ = _threshold_of(traffic_class, pfc)
            if limit is not None and limit > free:
                of = f" of {traffic_class.name}" if classes > 1 else ""
                raise UsageError(
                    f"PFC: xoff{of} ({limit:,} B) exceeds the shared buffer, {free:,} B without "
                    f"the headroom of {each}: --lossless pfc:xoff=... or buffer=..."
                )
        pools["size"][switch] = free
    rules = table(1, PAUSE_RULES)
    rules["xon"] = packet if pfc.xon_bytes is None else pfc.xon_bytes
    rules["reaction"], rules["quanta"] = pfc.reaction_ps, pfc.quanta or 0
    rules["storm_after"] = pfc.storm_ps
    rules["several"] = classes > 1 or pfc.quanta is not None
    counted = links * flows <= MOST_CELLS
    held = np.zeros((links, flows) if counted else (1, 1), np.uint8)
    return Pauses(rows, pools, rules, held, wheel)


def _threshold_of(traffic_class: TrafficClass, pfc: Pfc) -> tuple[int | None, float]:
    """(static threshold or None, alpha) of a class."""
    if traffic_class.xoff_bytes is not None:
        return traffic_class.xoff_bytes, pfc.alpha
    if traffic_class.alpha is not None:
        return None, traffic_class.alpha
    return pfc.xoff_bytes, pfc.alpha


def reverse_links(source: Int32s, target: Int32s) -> Int32s:
    """int32[L]: the other direction of each link, -1 for none; parallel links by their order."""
    number = np.arange(len(source))
    there = np.lexsort((number, target, source))
    back = np.lexsort((number, source, target))
    reverse = np.full(len(source), -1, np.int32)
    if (source[there] == target[back]).all() and (target[there] == source[back]).all():
        reverse[there] = back
        return reverse
    places: dict[tuple[int, int], list[int]] = {}
    for link, ends in enumerate(zip(target.tolist(), source.tolist(), strict=True)):
        places.setdefault(ends, []).append(link)
    for link, ends in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        others = places.get(ends)
        if others:
            reverse[link] = others.pop(0)
    return reverse
