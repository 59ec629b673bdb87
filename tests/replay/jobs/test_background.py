"""Traffic of a pattern beside jobs."""

from __future__ import annotations

import numpy as np

from rocescope.replay.compare.pattern import pairs_of
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.jobs.background import background
from rocescope.replay.jobs.offered import offer_jobs
from rocescope.replay.packets.model.model import Model

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=4,rate=100G")


def test_messages_begin_at_the_times_of_the_pattern_on_their_queue_pairs() -> None:
    pairs, _ = pairs_of("trace-like:flows=40,messages=2,message-size=1kB", FABRIC)
    load = offer_jobs([background("trace-like", pairs, 8)], FABRIC, Model(pfc=None), 1).workload
    assert len(load.src) == 40 and len(load.flow) == 80
    assert sorted(load.release_ps[::2].tolist()) == sorted((pairs.start_ns * 1000).tolist())
    assert np.bincount(load.src).sum() == 40 and load.at_once.all()
