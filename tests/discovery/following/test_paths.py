"""Paths of which only those through changed switches are walked again."""

from __future__ import annotations

import numpy as np
from answers import recorded, traffic_of, truth

from rocescope.discovery.discover import discover_folder
from rocescope.discovery.following.paths import CurrentPaths
from rocescope.discovery.tracing.paths import trace_paths
from rocescope.replay.fabrics.devices.reread import Reread
from rocescope.replay.fabrics.files.linux_tables import read_device


def test_paths_are_those_of_a_walk_of_all_flows(tmp_path):
    folder = recorded(tmp_path)
    state = Reread(discover_folder(folder / "healthy", 10**10, 500).fabric)
    current = CurrentPaths(traffic_of(state.fabric, truth(folder, "healthy")), state)
    for name in ("flapped", "healthy"):
        for switch in ("leaf1", "spine2"):
            state.update(read_device(folder / name, switch), "now")
            before, moved = current.retrace([switch])
            every = trace_paths(current.traffic, state.fabric)
            links = current.paths.placement.links
            width = every.placement.links.shape[1]
            assert (links[:, :width] == every.placement.links).all()
            assert (links[:, width:] == -1).all()
            for column in ("reason", "switch", "contradicted"):
                assert (getattr(current.paths, column) == getattr(every, column)).all()
            assert (current.paths.placement.dropped == every.placement.dropped).all()
            old = before.placement.links[:, :width]
            assert moved.tolist() == np.flatnonzero((old != every.placement.links).any(1)).tolist()
            assert len(moved)
    assert current.complete.all()
    assert current.fim_percent() > 0


def test_a_switch_that_loses_its_hash_ends_its_paths(tmp_path):
    folder = recorded(tmp_path)
    state = Reread(discover_folder(folder / "healthy", 10**10, 500).fabric)
    current = CurrentPaths(traffic_of(state.fabric, truth(folder, "healthy")), state)
    for switch in ("leaf1", "leaf2"):
        (folder / "healthy" / f"{switch}.sysctl").unlink()
        state.update(read_device(folder / "healthy", switch), "now")
        current.retrace([switch])
    assert not current.complete.any()
    assert current.fim_percent() is None
