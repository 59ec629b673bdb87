"""The driver against its plain twin, and sums that are exact whatever the network does."""

from __future__ import annotations

from aggregation_twin import Twin, tallies
from examples import examples
from hypothesis import given
from hypothesis import strategies as some

from rocescope.replay.aggregation.columns import ty
from rocescope.replay.aggregation.jobs import parse_jobs, place
from rocescope.replay.aggregation.run import Conditions, simulate
from rocescope.replay.aggregation.schemes.registry import parse_schemes
from rocescope.replay.fabrics.parse import parse_fabric

FABRICS = (
    "leaf-spine:leaves=1,spines=1,hosts=16,rate=100G,delay=500ns",
    "leaf-spine:leaves=3,spines=2,hosts=8,rate=100G,delay=500ns",
)
SHORT = "rto=30us,first-rto=60us"
SPECS = (
    f"atp:{SHORT}", f"atp:{SHORT},slot-timeout=20us", f"atp:{SHORT},reminder=20us", f"esa:{SHORT}",
    f"esa:{SHORT},release=completion", f"esa:{SHORT},ageing=no,rehash=yes",
    f"a2tp:{SHORT},base-rtt=3us", f"a2tp:{SHORT},aggregators=1,contention=0,rehash=no",
    f"ideal:{SHORT}", f"none:{SHORT}", "switchml:rto=30us", "switchml:rto=30us,double-after=3",
)  # fmt: skip


@some.composite
def cases(draw):
    """A scheme, jobs on a small fabric, and what the network does to packets."""
    spec = draw(some.sampled_from(SPECS))
    fabric = parse_fabric(draw(some.sampled_from(FABRICS)))
    several = fabric.switches > 2
    window = draw(some.integers(2, 8))
    plans = []
    for _ in range(draw(some.integers(1, 3))):
        workers = draw(some.integers(2, 4))
        racks = draw(some.integers(1, 2)) if several else 1
        plans.append(
            f"workers={workers},racks={racks},model={draw(some.sampled_from(('comm', 'comp')))},"
            f"fragments={draw(some.integers(3, 24))},layers={draw(some.integers(1, 3))},"
            f"iterations={draw(some.integers(1, 3))},window={window},"
            f"overflow={draw(some.sampled_from((0, 0, 0.2, 1)))},"
            f"stragglers={draw(some.integers(0, 1))},slowdown=3"
        )
    share = some.sampled_from((0.0, 0.0, 0.01, 0.1))
    conditions = Conditions(
        slots=draw(some.integers(max(8, window), 24)),
        seed=draw(some.integers(0, 1000)),
        jitter=draw(some.sampled_from((0.0, 0.2, 2.0))),
        loss=draw(share),
        copies=draw(share),
        delays=draw(share),
    )
    return spec, plans, fabric.name, conditions


@examples(60, deadline=None)
@given(cases())
def test_every_gradient_is_summed_once_and_as_the_twin_says(case):
    spec, plans, name, conditions = case
    scheme, fabric = parse_schemes([spec])[0], parse_fabric(name)
    jobs = place(parse_jobs(plans), fabric)
    found = simulate(scheme, jobs, fabric, conditions)  # raises when a result is another sum

    assert (found.finished_ps >= 0).all()
    for number, job in enumerate(jobs):
        results = len(job.workers) * job.total
        assert found.tally["results"][number] == results == found.tally["sent"][number]
    twin = Twin(scheme.name.partition(":")[0], scheme.conduct, jobs, fabric, conditions)
    twin.run()
    assert [w.finished for w in twin.workers] == found.finished_ps.tolist()
    for worker, ends in zip(twin.workers, found.ends_ps.tolist(), strict=True):
        assert worker.ends == [end for end in ends if end >= 0]
    assert tallies(twin, ty) == found.tally.tolist()
