"""Completion times of jobs."""

from __future__ import annotations

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.jobs.offered import offer_jobs
from rocescope.replay.jobs.spec import parse_jobs
from rocescope.replay.jobs.times import alone_ps, job_times
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.runs import run_packets
from rocescope.replay.strategies.registry import parse_packet_strategy

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=4,rate=100G,delay=500ns")


def test_jobs_end_with_their_last_message_and_are_alone_as_fast_as_beside_idle_ones() -> None:
    model, strategy = Model(pfc=None), parse_packet_strategy("host-spray")
    jobs = parse_jobs(["workers=4,size=64kB,iterations=3,compute=20us", "workers=4,start=1ms"])(
        FABRIC, 1
    )
    alone = alone_ps(jobs, FABRIC, model, 1.0)
    offered = offer_jobs(jobs, FABRIC, model, 1)
    result = run_packets(offered.workload, FABRIC, strategy, model, 1)
    one, two = job_times(jobs, alone, offered, result)
    assert one.end is not None and two.end is not None
    assert one.start == 0 and two.start == 10**9 and one.workers == 4
    assert one.iterations[-1] == one.end and len(one.iterations) == 3
    assert one.end >= one.bound >= 3 * 20_000_000 and two.end - two.start >= two.bound
    assert two.end == int(result.completed_ps.max())
    own = offer_jobs(jobs[:1], FABRIC, model, 1)
    single = run_packets(own.workload, FABRIC, strategy, model, 1)
    assert int(single.completed_ps.max()) == one.end  # the other job has hosts and leaf of its own
