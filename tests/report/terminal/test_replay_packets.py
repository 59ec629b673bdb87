"""Numbers and titles that reports of replays share."""

from __future__ import annotations

from io import StringIO

import msgspec
import replay_traffic
from msgspec.structs import replace
from rich.table import Table

from rocescope.replay.compare.flows import replay
from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.results import AS_CAPTURED, Chance, PausedPort, PausedPriority, PauseSummary
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.report.terminal.page import Page, console_for
from rocescope.report.terminal.replay_packets import (
    NONE,
    _jobs,
    _jobs_verdict,
    _verdict,
    captured_links,
    chance_text,
    factor,
    fim,
    print_pauses,
)

# Numbers and titles that reports of replays share.


def test_unknown_numbers_are_a_dash() -> None:
    assert fim(None) == factor(None) == chance_text(None) == NONE
    assert (fim(12.34), factor(1.005)) == ("12.3", "1.00")


def test_chance_has_its_range() -> None:
    assert chance_text(Chance(mean=24.23, p05=18.4, p95=31.2, draws=9)) == "24.2 (18 to 31)"


def test_loads_over_fewer_links_than_those_of_the_strategies_say_so() -> None:
    fabric = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=4")
    traffic = replay_traffic.traffic(fabric, [0, 1], [4, 5])
    (one,) = replay(traffic, fabric, [parse_strategy("static")], ["a.pcap"]).strategies
    row = msgspec.structs.replace(one, name=AS_CAPTURED)
    assert captured_links([row, one]) == captured_links([one]) == ""
    few = [msgspec.structs.replace(layer, links=layer.links // 2) for layer in one.layers]
    told = captured_links([msgspec.structs.replace(row, layers=few), one])
    links = sum(layer.links for layer in one.layers if layer.choice)
    assert f"{links // 2} captured links" in told and f"all {links}." in told


# Pauses of PFC on a terminal.


def _printed(summary: PauseSummary) -> str:
    out = StringIO()
    print_pauses(Page(console_for(out, "never")), summary)
    return " ".join(out.getvalue().split())


def _summary(victims: int | None = 2, lost: int = 0, ports: int = 2) -> PauseSummary:
    found = [
        PausedPort(
            port=f"leaf{i}>spine1", layer="leaf-spine", pauses=10 * i, paused_ns=9_000 // i,
            longest_ns=1_000 * i, victims=victims,
        )
        for i in range(1, ports + 1)
    ]  # fmt: skip
    return PauseSummary(
        pauses=30, paused_ns=13_500, lost_without_headroom=lost, victim_flows=victims,
        causes=[f"leaf9>host{i}" for i in range(1, 6)], ports=found, deadlocked_runs=0, deadlock=[],
        settings={"alpha": "0.125", "xon": "4160"},
    )  # fmt: skip


def test_a_row_per_layer() -> None:
    text = _printed(_summary())
    assert "leaf-spine 2 30 2.00 us leaf1>spine1 9.00 us 2" in text
    assert "leaf9>host1, leaf9>host2, leaf9>host3 and 2 more." in text
    assert "none of these links: 2." in text and "dropped" not in text


def test_what_is_not_known_is_said() -> None:
    assert "Too many flows and links to count victims." in _printed(_summary(None))
    assert "7 packets dropped because the headroom of a port was full." in _printed(
        _summary(lost=7)
    )
    assert _printed(_summary(ports=0)) == (
        "PFC paused no port in the first run. "
        "PFC, in bytes of a switch or port: alpha 0.125, xon 4160."
    )


def test_priorities_and_storms() -> None:
    ports = [
        PausedPort(
            port=f"host{i}>leaf1", layer="host-leaf", priority=name, pauses=1, paused_ns=300_000,
            longest_ns=300_000, victims=0, storm_ns=storm,
        )
        for i, name, storm in ((1, "data", 210_000), (2, "background", None))
    ]  # fmt: skip
    by_class = [
        PausedPriority(
            priority=name, pauses=1, paused_ns=300_000, frames=1, lost_without_headroom=0
        )
        for name in ("data", "background")
    ]
    text = _printed(
        replace(
            _summary(), ports=ports, priorities=by_class, storms=ports[:1], storm_after_ns=200_000
        )
    )
    assert "host-leaf data 1 1 300 us host1>leaf1 300 us 0" in text
    assert "host-leaf background 1 1 300 us host2>leaf1 300 us 0" in text
    assert "Pause storm, first run: paused for 200 us or longer without a break" in text
    assert "host1>leaf1 (data, after 210 us, 300 us long)." in text
    assert "storm" not in _printed(_summary())
    stuck = [replace(ports[0], endless=True)]
    text = _printed(replace(_summary(), ports=stuck, storms=stuck, storm_after_ns=200_000))
    assert "host-leaf 1 1 endless host1>leaf1 300 us 0" in text
    assert "host1>leaf1 (data, after 210 us, endless)." in text


# The headline of jobs.


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
