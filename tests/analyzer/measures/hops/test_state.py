"""Layouts of the hop measure."""

from __future__ import annotations

from rocescope.analyzer.measures.hops import measure, state


def test_numbers_in_place_of_taps_are_no_taps():
    """65,534 taps are possible besides START and END."""
    assert {state.START, state.END} == {0xFFFE, 0xFFFF}


def test_items_of_arrays_do_not_overlap():
    clock = [
        state.HORIZON,
        state.NEWEST,
        state.HURRIED,
        state.LONGEST,
        state.WIDTH,
        state.ORIGIN,
        state.AWAY,
    ]
    used = [state.HEAD, state.TAIL, state.SIGHTED, state.EDGES, state.HOPS, state.VISITS]
    empty = measure.HopMeasure().state
    clock += [state.FROM, state.TO]
    used += [state.ENDS, state.RESENT, state.UNLOGGED, state.AWAY_FROM]
    assert sorted(clock) == list(range(len(empty.clock)))
    assert sorted(used) == list(range(len(empty.used)))
    assert empty.windows.shape[1:] == (state.WINDOWS, state.WINDOW_VALUES)
