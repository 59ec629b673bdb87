"""The headline of jobs."""

from __future__ import annotations

from msgspec.structs import replace
from rich.table import Table

from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.report.terminal.replay_packets import _jobs, _jobs_verdict, _verdict


def test_a_job_that_did_not_complete_is_named_before_the_one_farthest_over_its_bound() -> None:
    request = ReplayRequest(
        fabric="leaf-spine:leaves=2,spines=1,hosts=2,rate=100G,delay=500ns",
        jobs=("workers=2,size=40kB,count=2,place=spread",),
        strategies=("ecmp",),
    )
    result, whole = PreparedReplay(request).by_packets(["ecmp"])
    assert whole
    (one,) = result.strategies
    assert one.packets is not None
    first, second = one.packets.jobs
    over = max((first, second), key=lambda job: job.over_bound_percent.mean)  # type: ignore[union-attr]
    said = f"Largest distance to the lower bound: {over.name} under ecmp"
    assert _jobs_verdict([one]).startswith(said)
    never = replace(second, completed_runs=0, completion_ns=None, over_bound_percent=None)
    changed = replace(one, packets=replace(one.packets, jobs=[first, never]))
    assert _jobs_verdict([one, changed]) == f"{second.name} under {one.title} did not complete."
    some = replace(one, packets=replace(one.packets, runs=2, jobs=[first, second]))
    assert (
        _jobs_verdict([some]) == f"{first.name} under {one.title} did not complete in 1 of 2 runs."
    )


def test_the_class_of_every_job_is_shown() -> None:
    request = ReplayRequest(
        fabric="leaf-spine:leaves=2,spines=1,hosts=2,rate=100G,delay=500ns",
        jobs=("workers=2,size=40kB", "workers=2,size=40kB,priority=back"),
        priority=("data:weight=3", "back:weight=1"),
        strategies=("ecmp",),
        packets=True,
    )
    result, _ = PreparedReplay(request).by_packets(["ecmp"])
    packets = result.strategies[0].packets
    assert packets is not None and [job.priority for job in packets.jobs] == ["data", "back"]
    table = Table()
    _jobs(table, result.strategies)
    names = [str(column.header) for column in table.columns]
    assert list(table.columns[names.index("priority")].cells) == ["data", "back"]


def test_the_headline_covers_every_row() -> None:
    request = ReplayRequest(
        fabric="leaf-spine:leaves=2,spines=1,hosts=2,rate=100G,delay=500ns",
        pattern="permutation:message-size=40kB",
        strategies=("ecmp",),
        packets=True,
    )
    result, _ = PreparedReplay(request).by_packets(["ecmp"])
    (one,) = result.strategies
    first, last = (replace(one, completion_time_ns=ns) for ns in (1_494_900, 1_495_100))
    assert _verdict([first, last]).startswith("All complete in 1.49 ms to 1.50 ms, ")
    assert _verdict([first, first]).startswith("All complete in 1.49 ms, ")
