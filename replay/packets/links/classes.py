"""Queues of several classes of data at a link, and the class that sends next."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, inlined, subkernel
from ..model import classes as cl
from ..model import pause_state as ps
from ..model import run_state as rs
from ..model.model import message_of
from ..model.run_state import Network
from .slots import link_next, next_of, size_of


@inlined
def class_of(run: Network, key: Int) -> Int:
    """Class of a data packet, 0 if there is only one."""
    if run.settings[rs.CLASSES] == 1:
        return np.int64(0)
    return np.int64(run.classes.of_message[message_of(key)])


@inlined
def row_of(run: Network, link: Int, of: Int) -> Int:
    """The row of a class at a link, in `queues` and in the rows of pauses."""
    return link * run.settings[rs.CLASSES] + of


@inlined
def is_held(run: Network, row: Int, time: Int) -> bool:
    """Whether data of a class must not start at a time: it is paused, or its sender has yet to
    obey a frame of this time."""
    rows = run.pauses.rows
    return rows[row, ps.PAUSED] != 0 or rows[row, ps.FRAME_TIME] <= time


@subkernel
def open_classes(run: Network, link: Int, time: Int) -> Int:
    """Mask of the classes of which packets wait at a link and that are not paused."""
    mask = np.int64(0)
    for of in range(run.settings[rs.CLASSES]):
        row = row_of(run, link, np.int64(of))
        if run.classes.queues[row, cl.HEAD] >= 0:
            if run.settings[rs.PFC] == 0 or not is_held(run, row, time):
                mask |= np.int64(1) << of
    return mask


@subkernel
def next_class(run: Network, link: Int, may: Int, at_host: Int) -> Int:
    """The class that sends next, of those in the mask `may`; -1 for none.

    At a host the class is chosen before its packet is known: a class may send while it has bytes
    left, and owes the excess.
    """
    queues, turns, rules = run.classes.queues, run.classes.turns, run.classes.rules
    classes = run.settings[rs.CLASSES]
    if may == 0:
        return np.int64(-1)
    for of in range(classes):
        if rules[of, cl.QUANTUM] == 0 and may >> of & 1:
            return np.int64(of)
    while True:
        of = turns[link, cl.TURN]
        row = row_of(run, link, of)
        if may >> of & 1:
            if turns[link, cl.CREDITED] == 0:
                queues[row, cl.DEFICIT] += rules[of, cl.QUANTUM]
                turns[link, cl.CREDITED] = 1
            need: Int = np.int64(1)
            if at_host == 0:
                need = size_of(run.slots, queues[row, cl.HEAD])
            if queues[row, cl.DEFICIT] >= need:
                return of
        turns[link, cl.TURN] = (of + 1) % classes
        turns[link, cl.CREDITED] = 0


@subkernel
def charge(run: Network, link: Int, of: Int, size: Int, empty: Int) -> None:
    """Charge a class for a packet of `size` bytes. A class without packets (empty) saves
    nothing."""
    queues, turns = run.classes.queues, run.classes.turns
    if run.classes.rules[of, cl.QUANTUM] == 0:
        return
    row = row_of(run, link, of)
    queues[row, cl.DEFICIT] -= size
    if empty:
        queues[row, cl.DEFICIT] = min(np.int64(0), queues[row, cl.DEFICIT])
        turns[link, cl.TURN] = (of + 1) % run.settings[rs.CLASSES]
        turns[link, cl.CREDITED] = 0


@subkernel
def append(run: Network, link: Int, slot: Int, size: Int) -> None:
    """Append a data packet to the queue of its class."""
    queues, row = run.classes.queues, row_of(run, link, class_of(run, run.slots[slot, rs.KEY]))
    if queues[row, cl.HEAD] < 0:
        queues[row, cl.HEAD] = slot
    else:
        link_next(run.slots, queues[row, cl.TAIL], slot)
    queues[row, cl.TAIL] = slot
    queues[row, cl.BYTES] += size


@subkernel
def take_next(run: Network, link: Int, time: Int) -> Int:
    """Take the packet that is next; at least one class is open."""
    queues = run.classes.queues
    of = next_class(run, link, open_classes(run, link, time), np.int64(0))
    row = row_of(run, link, of)
    slot = queues[row, cl.HEAD]
    size = size_of(run.slots, slot)
    queues[row, cl.HEAD] = next_of(run.slots, slot)
    queues[row, cl.BYTES] -= size
    charge(run, link, of, size, np.int64(queues[row, cl.HEAD] < 0))
    return slot
