"""Jobs: their keys, their hosts, their priorities."""

from __future__ import annotations

import pytest
from aggregating import ONE_RACK, small_jobs

from rocescope.analyzer.errors import UsageError
from rocescope.replay.aggregation.jobs import parse_jobs, place, priorities
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.jobs.graph import MODELS


def test_layers_are_computed_from_the_back():
    (plan,) = parse_jobs(["model=alexnet,scale=0.1"])
    assert plan.fragments[-1] == round(MODELS["alexnet"][0] * 0.1 / 62)
    jobs, _ = small_jobs("model=alexnet,scale=0.001,workers=2")
    assert list(jobs[0].steps[0].computed_ps) == sorted(jobs[0].steps[0].computed_ps)
    assert jobs[0].steps[0].computed_ps[0] > jobs[0].steps[0].computed_ps[-1] // 3


def test_workers_and_server_have_hosts_of_their_own_in_as_many_racks_as_asked_for():
    jobs, fabric = small_jobs(
        "count=2,workers=4,racks=2", fabric="leaf-spine:leaves=4,spines=2,hosts=4"
    )
    hosts = [host for job in jobs for host in (*job.workers, job.server)]
    assert len(set(hosts)) == 10
    for job in jobs:
        racks = {int(fabric.attachments.switch[host, 0]) for host in job.workers}
        assert len(racks) == 2 and int(fabric.attachments.switch[job.server, 0]) in racks


def test_starts_are_staggered():
    jobs, _ = small_jobs("count=3,workers=2,start=1ms,stagger=2us")
    assert [job.start_ps for job in jobs] == [10**9, 10**9 + 2_000_000, 10**9 + 4_000_000]


def test_priorities_rise_towards_the_end_the_front_and_with_communication():
    jobs, _ = small_jobs("workers=2,layers=2,iterations=3", "workers=2,layers=2,model=comp")
    heavy, light = priorities(jobs, 100_000_000_000)
    assert heavy[0][0] < heavy[1][0] < heavy[2][0]
    assert all(back < front for back, front in heavy)
    assert all(h > l for h, l in zip(heavy, light, strict=True))
    levels = [level for job in (heavy, light) for row in job for level in row]
    assert 0 <= min(levels) and max(levels) <= 255


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("workers=63", "workers '63' is not a whole number from 1 to 62"),
        ("model=gpt", "no model 'gpt'; there are comm"),
        ("sizes=3", "no key 'sizes'"),
        ("model=vgg16,fragments=3", "fragments is for comm and comp"),
        ("model=comm,ratio=2", "the ratio of comm is 2"),
        ("scale=-1", "scale .* is not a number"),
        ("scale=nan", "scale .* is not a number"),
        ("model=vgg16,scale=1000", "exceed"),
        ("start=soon", "start"),
        ("workers", "not key=value"),
        ("overflow=1.5", "overflow '1.5' is not a number from 0 to 1"),
        ("slowdown=0.5", "slowdown '0.5' is not a number from 1 to 100"),
        ("workers=2,stragglers=3", "2 workers have no 3 stragglers"),
        ("iterations=10000,layers=1000", "iterations times layers must be at most"),
    ],
)
def test_mistakes(spec, said):
    with pytest.raises(UsageError, match=said):
        parse_jobs([spec])


@pytest.mark.parametrize(
    ("spec", "fabric", "said"),
    [
        ("workers=16", ONE_RACK, "do not fit the free hosts"),
        ("workers=2,racks=3", ONE_RACK, "do not fill 3 racks"),
        ("workers=4,racks=2", ONE_RACK, "do not fit the free hosts"),
        ("count=300", ONE_RACK, "count '300' is not a whole number from 1 to 256"),
        ("workers=2,model=vgg16,ratio=1e-6", ONE_RACK, "computes for over an hour"),
        ("workers=2", "multi-plane:planes=2,leaves=2,spines=2,hosts=4", "hosts with one port"),
    ],
)
def test_jobs_that_do_not_fit(spec, fabric, said):
    with pytest.raises(UsageError, match=said):
        place(parse_jobs([spec]), parse_fabric(fabric))
