"""The next link of a packet at a switch, the same in both drivers."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, Ints, inlined
from ..model.arrays import ATTACHED
from ..model.rules import Choice, Choose
from ..model.run_state import RunState


@inlined
def way_on(
    run: RunState,
    choose: Choose,
    state: Ints,
    group: Int,
    switch: Int,
    edge: Int,
    meta: Int,
    key: Int,
    time: Int,
) -> Int:
    """The chosen link of `group`, or the link to the host if group is ATTACHED; -1 for none.

    meta: of the packet's slot (destination host << 32 | label). key: for random choices. If the
    strategy reads queues, the links of the group have been served up to `time`, inclusive.
    The position that a strategy chooses is taken modulo the size of the group: a host may have
    chosen it for a larger group, before links failed.
    """
    label = meta & np.int64(0xFFFFFFFF)
    if group >= 0:
        first = run.group_start[group]
        size = run.group_start[group + 1] - first
        member: Int = np.int64(0)
        if size > 1 or run.settings[0].sees_all:
            at = Choice(run.members, first, size, switch, edge, key, label, time)
            member = choose(state, run.links, at)
            if member < 0 or member >= size:
                member %= size
        return np.int64(run.members[first + member])
    if group == ATTACHED:
        host = meta >> np.int64(32)
        for port in range(run.host_switch.shape[1]):
            if run.host_switch[host, port] == switch:
                out = np.int64(run.exits[host, port])
                if run.settings[0].sees_all:
                    none = np.int64(0)
                    at = Choice(run.members, out, none, switch, edge, key, label, time)
                    choose(state, run.links, at)
                return out
    return np.int64(-1)
