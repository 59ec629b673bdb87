"""Layouts of the hop measure: every field has its part in a merge."""

from __future__ import annotations

from rocescope.analyzer.measures.hops import measure, state


def test_every_field_of_an_edge_is_merged():
    """A counter that is added to EDGE and forgotten in a merge would be lost with a part."""
    merged = {*measure._SUMS, *measure._LEAST, *measure._MOST}
    others = {"flow", "from_tap", "to_tap", "hop", "delay_base", "shown_frame", "shown_ns"}
    assert merged | others == set(state.EDGE.names)


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
