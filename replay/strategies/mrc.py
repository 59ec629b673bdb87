"""MRC: queue pairs spray over a set of static paths in all planes and retire bad paths.

Source: Multipath Reliable Connection 1.0 (OCP, 2026) as cited in arXiv 2605.04333. Paths
are source routes (SRv6 micro-segments): an entropy value (EV) is a path, plane = EV modulo
planes, spine of that plane = EV // planes, and no switch hashes. Every round uses
every plane once, in a new random order, so planes carry the same bytes; the active EVs of a plane
are used in turn, in a new random order after every full turn.
States and transitions follow the MRC 1.0 specification (9.3.1) as cited there:

- GOOD: usable. SKIP: an ECN mark or a trimmed packet; skipped once, then GOOD again, at most
  one such EV per packet sent (11.2.2). ASSUMED_BAD: a packet was lost without a trim, or the
  receiver declared the EV bad; replaced at once by a backup EV of the same plane, never of another
  plane, and GOOD again after enough answered probes. DENIED: excluded by the operator.
- At least `least` EVs stay usable (`ev_min_active`, a quarter in the examples).
- While a NIC port or a port of the peer is down, its plane is not used.

Assumed, because not public: the probe interval and the number of answered probes until an EV is
GOOD again; that planes are used in rounds (a free port waits until the others had their turn);
that an ACK returns by the path of the packet that it acknowledges.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Int, Ints, inlined, subkernel
from ..fabrics.fabric import Fabric
from ..packets.model import labels
from ..packets.model.draws import generator
from ..packets.model.labels import EvState, HostFunctions, draw, host_functions, new_state
from ..packets.model.model import PS, Workload
from ..packets.model.rules import Choice, Rules, Strategy, chooser, no_label
from .base import Configured, state_of

GOOD, SKIP, ASSUMED_BAD, DENIED = range(4)
"""States of an EV."""
USED, REACHABLE, BAD, USABLE, PROBE_AT = range(labels.OWN, labels.OWN + 5)
"""Bit masks of the planes used in this round and of the planes that reach the peer; numbers of EVs
in ASSUMED_BAD and of usable active EVs; the EV probed last."""
PER_PLANE, LEAST, PROBE_PS, PROBES = range(labels.OWN_PARAMETERS, labels.OWN_PARAMETERS + 4)
"""Active EVs per plane, minimum of usable EVs, time between two probes of an EV, answers needed."""
PROBE_INTERVAL_PS: Final = 100_000_000
"""100 us (assumed)."""
PROBES_NEEDED: Final = 3
"""Answered probes until an EV is GOOD again (assumed)."""
_FIRST_PATHS: Final = 0x4D5243
"""Purpose of `generator`."""
_STATE, _ANSWERS, _ACTIVE = 3, 2, 16
"""Bits of an EV's entry in the table: its state, answered probes << 2, active."""
ACTIVE = 128
"""Entropy values in use (paper: 128 to 256)."""
LEAST_PROBE_PS = 1_000_000
"""1 us between probes of one entropy value: more probes would be a noticeable load."""


class Mrc(Configured, Strategy):
    """Options: `evs`, active entropy values of a queue pair (128, or three quarters of the paths if
    that is less); `least`, minimum of usable values (a quarter of evs); `probe`, time between two
    probes of a bad value (100us); `probes` that must be answered (3)."""

    name = "mrc"
    reacts: ClassVar[bool] = True
    learns_from_marks: ClassVar[bool] = True
    static_paths: ClassVar[bool] = True

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        self.known("evs", "least", "probe", "probes")
        planes = fabric.ports
        if planes < 2:
            raise UsageError(
                f"{self.name} needs a fabric with planes, like multi-plane:planes=8,...; "
                f"hosts of {fabric.name} have one port"
            )
        paths = _paths(self.name, fabric)
        fitting = max(planes, min(ACTIVE, planes * paths * 3 // 4) // planes * planes)
        evs = self.whole("evs", fitting, planes, planes * paths)
        if evs % planes:
            raise UsageError(f"{self.name}: evs={evs}: use a multiple of the {planes} planes")
        least = self.whole("least", evs // 4, 0, evs)
        probes = self.whole("probes", PROBES_NEEDED, 1, 4)
        probe_ps, probe = self.duration_ps("probe", "100us")
        if probe_ps < LEAST_PROBE_PS:
            raise UsageError(f"{self.name}: probe={probe}: use 1us or more")
        hosts = mrc(len(workload.src), seed, planes, paths, evs, least, probe_ps, probes)
        return Rules(
            _by_label(),
            no_label(),
            state_of([planes]),
            any_port=True,
            parameters={
                "evs": str(evs),
                "paths": str(planes * paths),
                "least": str(least),
                "probe": f"{probe_ps // PS}ns",
                "probes": str(probes),
            },
            hosts=hosts,
        )


def _paths(name: str, fabric: Fabric) -> int:
    """Paths of one plane: uplinks of a leaf; UsageError when leaves differ."""
    sizes = np.diff(fabric.forwarding.group_start)
    leaves = np.unique(fabric.attachments.switch[fabric.attachments.switch >= 0])
    groups = fabric.forwarding.group_of[leaves]
    group_sizes = np.unique(sizes[groups[groups >= 0]])
    if len(group_sizes) != 1:
        raise UsageError(f"{name}: all leaves of {fabric.name} must have equally many uplinks")
    return int(group_sizes[0])


@chooser
def _by_label(state: Ints, links: Ints, at: Choice) -> Int:
    """The link of the entropy value. State: planes."""
    return at.label // state[0] % at.size


@inlined
def _state_of(state: EvState, flow: Int, ev: Int) -> Int:
    return np.int64(state.table[flow, ev]) & _STATE


@inlined
def _set_state(state: EvState, flow: Int, ev: Int, value: Int) -> None:
    state.table[flow, ev] = (np.int64(state.table[flow, ev]) & _ACTIVE) | value


@inlined
def _slot(state: EvState, plane: Int, n: Int) -> Int:
    """Position in the table of the n-th active EV of a plane."""
    return state.params[labels.EVS] + plane * state.params[PER_PLANE] + n


@inlined
def _plane_order(state: EvState, n: Int) -> Int:
    """Position in the table of the n-th plane of a round."""
    return state.params[labels.EVS] + state.params[labels.PORTS] * state.params[PER_PLANE] + n


@inlined
def _cursor(state: EvState, plane: Int) -> Int:
    """Position in the table of the cursor of a plane: its next active EV."""
    return _plane_order(state, 0) + state.params[labels.PORTS] + plane


@inlined
def _shuffle(state: EvState, flow: Int, first: Int, n: Int) -> None:
    """Shuffle n entries of the table (Fisher and Yates)."""
    for i in range(n - 1, 0, -1):
        other = draw(state, flow, i + 1)
        kept = state.table[flow, first + i]
        state.table[flow, first + i] = state.table[flow, first + other]
        state.table[flow, first + other] = kept


@subkernel
def select(state: EvState, flow: Int, free_ports: Int, now_ps: Int) -> Int:
    """The next GOOD EV of the first free plane not yet used in this round; -1: none."""
    rows, table, params = state.rows, state.table, state.params
    planes, per_plane = params[labels.PORTS], params[PER_PLANE]
    reachable = rows[flow, REACHABLE]
    if reachable & ~rows[flow, USED] == 0:
        rows[flow, USED] = 0
        _shuffle(state, flow, _plane_order(state, 0), planes)
    wanted = free_ports & reachable & ~rows[flow, USED]
    restored = np.int64(-1)
    for n in range(planes):
        plane = np.int64(table[flow, _plane_order(state, n)])
        if wanted >> plane & 1 == 0:
            continue
        rows[flow, USED] |= np.int64(1) << plane  # even when none of its EVs is usable
        for _ in range(per_plane):
            cursor = np.int64(table[flow, _cursor(state, plane)])
            if cursor == 0:
                _shuffle(state, flow, _slot(state, plane, 0), per_plane)
            table[flow, _cursor(state, plane)] = cursor + 1 if cursor + 1 < per_plane else 0
            ev = np.int64(table[flow, _slot(state, plane, cursor)])
            now = _state_of(state, flow, ev)
            if now == SKIP and restored < 0:
                _set_state(state, flow, ev, GOOD)
                restored = ev
            elif now == GOOD:
                return ev
        if restored >= 0 and restored % planes == plane:
            return restored
    return np.int64(-1)


@subkernel
def _assume_bad(state: EvState, flow: Int, ev: Int, now_ps: Int) -> None:
    """Stop using an EV; a backup EV of its plane replaces it."""
    rows, params, table = state.rows, state.params, state.table
    planes = params[labels.PORTS]
    paths = params[labels.EVS] // planes
    plane = ev % planes
    active = np.int64(table[flow, ev]) & _ACTIVE != 0
    backup = np.int64(-1)
    if active:
        first = draw(state, flow, paths)
        for i in range(paths):
            other = (first + i) % paths * planes + plane
            if np.int64(table[flow, other]) & (_ACTIVE | _STATE) == GOOD:
                backup = other
                break
        if backup < 0 and rows[flow, USABLE] <= params[LEAST]:
            _set_state(state, flow, ev, SKIP)
            return
    _set_state(state, flow, ev, ASSUMED_BAD)
    rows[flow, BAD] += 1
    if backup >= 0:
        for n in range(params[PER_PLANE]):
            slot = _slot(state, plane, n)
            if table[flow, slot] == ev:
                table[flow, slot] = backup
        table[flow, backup] = _ACTIVE | GOOD
        table[flow, ev] = ASSUMED_BAD
    elif active:
        rows[flow, USABLE] -= 1
    if rows[flow, labels.WAKE] == labels.NEVER:
        rows[flow, labels.WAKE] = now_ps + params[PROBE_PS]


@subkernel
def feedback(state: EvState, flow: Int, ev: Int, what: Int, now_ps: Int) -> Int:
    """The transitions of figure 5 of the specification."""
    rows, params = state.rows, state.params
    if what == labels.PORT_MASK:
        rows[flow, REACHABLE] = ev
        return np.int64(0)
    now = _state_of(state, flow, ev)
    if what == labels.MARKED or what == labels.TRIMMED:
        if now == GOOD:
            _set_state(state, flow, ev, SKIP)
    elif what == labels.LOST or what == labels.TIMEOUT or what == labels.ALWAYS_SKIP:
        if now == GOOD or now == SKIP:
            _assume_bad(state, flow, ev, now_ps)
    elif (what == labels.PROBE_CLEAN or what == labels.PROBE_MARKED) and now == ASSUMED_BAD:
        answers = (np.int64(state.table[flow, ev]) >> _ANSWERS & 3) + 1
        if answers >= params[PROBES]:
            active = np.int64(state.table[flow, ev]) & _ACTIVE != 0
            _set_state(state, flow, ev, SKIP if what == labels.PROBE_MARKED else GOOD)
            rows[flow, BAD] -= 1
            if active:
                rows[flow, USABLE] += 1
        else:
            _set_state(state, flow, ev, ASSUMED_BAD | answers << _ANSWERS)
    return np.int64(0)


@subkernel
def wake(state: EvState, flow: Int, now_ps: Int) -> Int:
    """The next ASSUMED_BAD EV to probe; each EV is probed once per interval."""
    rows, params = state.rows, state.params
    bad, evs = rows[flow, BAD], params[labels.EVS]
    rows[flow, labels.WAKE] = labels.NEVER
    if bad <= 0:
        return np.int64(-1)
    rows[flow, labels.WAKE] = now_ps + max(np.int64(1), params[PROBE_PS] // bad)
    for i in range(1, evs + 1):
        ev = (rows[flow, PROBE_AT] + i) % evs
        if _state_of(state, flow, ev) == ASSUMED_BAD:
            rows[flow, PROBE_AT] = ev
            return ev
    return np.int64(-1)


def mrc(
    flows: int,
    seed: int,
    planes: int,
    paths: int,
    active: int,
    least: int | None = None,
    probe_ps: int = PROBE_INTERVAL_PS,
    probes: int = PROBES_NEEDED,
    denied: tuple[int, ...] = (),
) -> tuple[EvState, HostFunctions]:
    """State of flows over `planes` planes of `paths` paths each.

    active: EVs in use, at most planes * paths and a multiple of planes; the others are backups.
    least: minimum of usable EVs, default a quarter of the active EVs. probes: 1 to 4.
    """
    evs, per_plane = planes * paths, active // planes
    parameters = (per_plane, active // 4 if least is None else least, probe_ps, min(probes, 4))
    state = new_state(flows, evs + active + 2 * planes, seed, planes, evs, parameters)
    state.rows[:, REACHABLE] = (1 << planes) - 1
    state.rows[:, USABLE] = active
    rng = generator(seed, _FIRST_PATHS)
    state.table[:, list(denied)] = DENIED
    state.table[:, evs + active : evs + active + planes] = np.arange(planes)
    for plane in range(planes):
        allowed = [p for p in range(paths) if p * planes + plane not in denied]
        order = rng.permuted(np.tile(np.array(allowed), (flows, 1)), axis=1)
        chosen = order[:, np.arange(per_plane) % len(allowed)] * planes + plane
        state.table[:, evs + plane * per_plane : evs + (plane + 1) * per_plane] = chosen
        np.put_along_axis(state.table, chosen, _ACTIVE | GOOD, 1)
    return state, host_functions(select, feedback, wake)
