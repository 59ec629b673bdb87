"""What PFC did in a run: pauses, victims, and the cycle of a deadlock."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Ints
from ..links.pauses import first_waiting, hold_waiting
from ..links.slots import next_of
from ..model import pause_state as ps
from ..model.pfc import PauseOutcome
from ..model.run_state import RunState


def pause_outcome(
    run: RunState, names: tuple[str, ...], incomplete: bool, ended: bool
) -> PauseOutcome:
    """The outcome of a run with PFC. names: of the classes of data. ended: no event is left, so
    a cycle in an incomplete run cannot resolve."""
    rows, held = run.pauses.rows.copy(), run.pauses.held
    now, classes = int(run.counts["clock"][0]), len(names)
    after = int(run.pauses.rules["storm_after"][0])
    endless = (rows["paused"] != 0) & (incomplete and ended)
    for row in np.flatnonzero(rows["paused"]).tolist():
        since = int(rows["since"][row])
        rows["paused_ps"][row] += now - since
        rows["longest_ps"][row] = max(int(rows["longest_ps"][row]), now - since)
        if (now - since >= after or endless[row]) and rows["storm"][row] < 0:
            rows["storm"][row] = since + after
        hold_waiting(run, run.messages, row // classes, row % classes)
    victims = None
    if len(held) > 1:
        roots = (rows["roots"] > 0).reshape(-1, classes).any(1)
        users = (held[roots] & ps.USES).any(0)
        victims = (held & ps.HELD != 0) & ~users
    return PauseOutcome(
        classes=names,
        storm_after_ps=after,
        frames=rows["frames"],
        storm_ps=rows["storm"],
        pauses=rows["pauses"],
        paused_ps=rows["paused_ps"],
        longest_ps=rows["longest_ps"],
        endless=endless,
        roots=rows["roots"],
        most_headroom=rows["most_headroom"],
        headroom=rows["room"],
        needed=rows["needed"],
        no_room=rows["no_room"],
        victims=None if victims is None else np.repeat(victims.sum(1), classes),
        victim_flows=None if victims is None else int(victims.any(0).sum()),
        deadlock=tuple(row // classes for row in _circle(_waits(run))) if incomplete else (),
        buffers=_buffers(run, rows),
        xon_bytes=int(run.pauses.rules["xon"][0]),
        may_pass=not ended,
    )


def _buffers(run: RunState, rows: Ints) -> Ints:
    """int64[S]: shared buffer of each switch, headroom included."""
    whole = run.pauses.pools["size"].copy()
    into = rows["switch"] < len(whole)
    np.add.at(whole, rows["switch"][into], rows["room"][into])
    return whole


def _waits(run: RunState) -> dict[int, list[int]]:
    """The paused rows for which each paused row waits: they hold its packets up."""
    rows: Ints = run.pauses.rows
    classes = int(run.settings["classes"][0])
    stuck = (rows["paused"] != 0) & (rows["asked"] != 0)
    waits: dict[int, list[int]] = {int(row): [] for row in np.flatnonzero(stuck)}
    for out in waits:
        slot = int(first_waiting(run, out // classes, out % classes))
        while slot >= 0:
            came_by = int(run.slots["time"][slot]) * classes + out % classes
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
