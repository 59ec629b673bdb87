"""What PFC did in a run: pauses, victims, and the cycle of a deadlock."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Ints
from ..links.pauses import first_waiting, hold_waiting
from ..links.slots import next_of
from ..model import pause_state as ps
from ..model import run_state as rs
from ..model.pfc import PauseOutcome
from ..model.run_state import RunState


def pause_outcome(
    run: RunState, names: tuple[str, ...], incomplete: bool, ended: bool
) -> PauseOutcome:
    """The outcome of a run with PFC. names: of the classes of data. ended: no event is left, so
    a cycle in an incomplete run cannot resolve."""
    rows, held = run.pauses.rows.copy(), run.pauses.held
    now, classes = int(run.counts[rs.CLOCK]), len(names)
    after = int(run.pauses.rules[ps.STORM_AFTER])
    endless = (rows[:, ps.PAUSED] != 0) & (incomplete and ended)
    for row in np.flatnonzero(rows[:, ps.PAUSED]).tolist():
        since = int(rows[row, ps.SINCE])
        rows[row, ps.PAUSED_PS] += now - since
        rows[row, ps.LONGEST_PS] = max(int(rows[row, ps.LONGEST_PS]), now - since)
        if (now - since >= after or endless[row]) and rows[row, ps.STORM] < 0:
            rows[row, ps.STORM] = since + after
        hold_waiting(run, run.messages, row // classes, row % classes)
    victims = None
    if len(held) > 1:
        roots = (rows[:, ps.ROOTS] > 0).reshape(-1, classes).any(1)
        users = (held[roots] & ps.USES).any(0)
        victims = (held & ps.HELD != 0) & ~users
    return PauseOutcome(
        classes=names,
        storm_after_ps=after,
        frames=rows[:, ps.FRAMES],
        storm_ps=rows[:, ps.STORM],
        pauses=rows[:, ps.PAUSES],
        paused_ps=rows[:, ps.PAUSED_PS],
        longest_ps=rows[:, ps.LONGEST_PS],
        endless=endless,
        roots=rows[:, ps.ROOTS],
        most_headroom=rows[:, ps.MOST_HEADROOM],
        headroom=rows[:, ps.ROOM],
        needed=rows[:, ps.NEEDED],
        no_room=rows[:, ps.NO_ROOM],
        victims=None if victims is None else np.repeat(victims.sum(1), classes),
        victim_flows=None if victims is None else int(victims.any(0).sum()),
        deadlock=tuple(row // classes for row in _circle(_waits(run))) if incomplete else (),
        buffers=_buffers(run, rows),
        xon_bytes=int(run.pauses.rules[ps.XON]),
        may_pass=not ended,
    )


def _buffers(run: RunState, rows: Ints) -> Ints:
    """int64[S]: shared buffer of each switch, headroom included."""
    whole = run.pauses.pools[:, ps.SIZE].copy()
    into = rows[:, ps.SWITCH] < len(whole)
    np.add.at(whole, rows[into, ps.SWITCH], rows[into, ps.ROOM])
    return whole


def _waits(run: RunState) -> dict[int, list[int]]:
    """The paused rows for which each paused row waits: they hold its packets up."""
    rows: Ints = run.pauses.rows
    classes = int(run.settings[rs.CLASSES])
    stuck = (rows[:, ps.PAUSED] != 0) & (rows[:, ps.ASKED] != 0)
    waits: dict[int, list[int]] = {int(row): [] for row in np.flatnonzero(stuck)}
    for out in waits:
        slot = int(first_waiting(run, out // classes, out % classes))
        while slot >= 0:
            came_by = int(run.slots[slot, rs.TIME]) * classes + out % classes
            if came_by in waits and out not in waits[came_by]:
                waits[came_by].append(out)
            slot = int(next_of(run.slots, slot))
    return waits


def _circle(waits: dict[int, list[int]]) -> tuple[int, ...]:
    """A cycle, each link before the link for which it waits; empty without one."""
    done: set[int] = set()
    for begin, others in waits.items():
        path, places = [(begin, iter(others))], {begin: 0}
        while path and begin not in done:
            here, rest = path[-1]
            following = next(rest, None)
            if following is None:
                path.pop()
                done.add(here)
                del places[here]
            elif following in places:
                return tuple(link for link, _ in path[places[following] :])
            elif following not in done:
                places[following] = len(path)
                path.append((following, iter(waits[following])))
    return ()
