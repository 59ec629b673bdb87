"""The reports of replay, sweep and recover-seed as they are printed."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace as replace_replay_varied
from dataclasses import replace as replace_sweep
from io import StringIO
from pathlib import Path

import msgspec
import pytest
import replay_traffic
from aggregating import small_jobs
from captures import data
from msgspec.structs import replace
from rich.table import Table

from rocescope.replay.aggregation.compare import aggregation_result
from rocescope.replay.aggregation.request import parse_schemes
from rocescope.replay.aggregation.run import Conditions
from rocescope.replay.compare.captured import sweep_result
from rocescope.replay.compare.flows import replay
from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.compare.vary import replay_varied
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.fabrics.switch_hashing import switch_hashing
from rocescope.replay.hashing.seeded import SeedRange
from rocescope.replay.results import (
    AS_CAPTURED,
    Candidate,
    Chance,
    PausedPort,
    PausedPriority,
    PauseSummary,
    RecoverResult,
    ReplayResult,
    SweepResult,
    SwitchRecovery,
)
from rocescope.replay.seeds.recover import Wanted, recover_all, settings_of
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.report.files.results import encode
from rocescope.report.terminal.aggregate import fill_aggregation
from rocescope.report.terminal.aggregate import verdict as verdict_aggregate
from rocescope.report.terminal.page import Page, console_for, page_on
from rocescope.report.terminal.replay import fill_replay, verdict
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
from rocescope.report.terminal.sweep import fill_recovery, fill_sweep, strategy_words

# The reports of replay, sweep and recover-seed as they are printed.

# The reports of replay, sweep and recover-seed as they are printed.

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=4")


@pytest.fixture(scope="module")
def compared() -> ReplayResult:
    traffic = replay_traffic.traffic(
        FABRIC, [0, 1, 2, 3] * 4, [4, 5, 6, 7] * 4, windows=[(i, i % 3, 1000) for i in range(16)]
    )
    strategies = [parse_strategy(text) for text in ("ecmp:hash=crc32,seed=7", "static", "assign")]
    return replay(traffic, FABRIC, strategies, ["run.pcap"])


@pytest.fixture(scope="module")
def swept() -> SweepResult:
    traffic = replay_traffic.random_traffic(FABRIC, 60)
    return sweep_result(
        traffic, FABRIC, {"hash": "crc32"}, SeedRange(0, 200), "equal", "fim-flows", 3, ["run.pcap"]
    )


def printed(fill: Callable[[Page], None], encoding: str = "utf-8") -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    fill(page_on(stream))
    stream.seek(0)
    return stream.read()


def test_the_best_strategy_comes_first(compared: ReplayResult) -> None:
    ecmp, static, assign = compared.strategies
    assert static.lower_bound_ns == assign.lower_bound_ns
    text = printed(lambda page: fill_replay(page, compared))
    assert text.startswith("run.pcap: 16 flows, 16.0 kB, 8 hosts\n")
    assert verdict(compared).startswith("static (by=round-robin) puts 1.00 times the fair share")
    for heading in ("STRATEGIES", "ECMP (HASH=CRC32, SEED=7)", "STATIC (BY=ROUND-ROBIN)", "ASSIGN"):
        assert f"\n{heading}\n" in text
    assert "Per window" in text and "concurrent" in text
    assert "leaf-host" not in text  # nothing is chosen there


def test_no_table_of_layers_without_a_choice() -> None:
    traffic = replay_traffic.traffic(FABRIC, [0], [1], windows=[(0, 0, 1000)])
    result = replay(traffic, FABRIC, [parse_strategy("static")], ["run.pcap"])
    text = printed(lambda page: fill_replay(page, result))
    assert "No strategy had a choice of links" in text
    assert "layer  links" not in text


def test_equal_strategies_are_told_so(compared: ReplayResult) -> None:
    import msgspec

    same = msgspec.structs.replace(compared, strategies=[compared.strategies[1]] * 2)
    assert verdict(same).endswith("between switches; the other strategies do the same.")


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_lines_fit(
    compared: ReplayResult,
    swept: SweepResult,
    width: int,
    encoding: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for fill in (
        lambda page: fill_replay(page, compared),
        lambda page: fill_sweep(page, swept),
    ):
        text = printed(fill, encoding)
        assert max(map(len, text.splitlines())) <= width
        assert text.isascii() or encoding != "ascii"


def test_a_sweep_says_what_it_means(swept: SweepResult) -> None:
    text = printed(lambda page: fill_sweep(page, swept))
    plain = " ".join(text.split())
    assert "crc32 (5-tuple), 200 seeds of 0:200, equal on the switches" in plain
    assert "Every seed gives the same imbalance" in plain and "Seed 3 has" in plain
    assert "ideal random hashing gives" in plain
    assert "best seeds" not in text  # all are equal
    other = replace(swept.distribution, max=swept.distribution.min + 1)
    text = printed(lambda page: fill_sweep(page, replace(swept, distribution=other)))
    assert "best seeds" in text and "worst seeds" in text


def test_a_recovery_is_told_plainly() -> None:
    import numpy as np

    from rocescope.replay.hashing.models import bind
    from rocescope.replay.hashing.settings import Group, HashSettings
    from rocescope.replay.seeds.tapped import Direction, Seen

    keys = replay_traffic.random_traffic(FABRIC, 60).keys
    group = Group(np.ones(4, np.int64))
    link = bind(keys, HashSettings("linux")).choose([500], group)[0].astype(np.int32)
    zeros = np.zeros(60, np.int64)
    names = tuple(f"spine{i}.pcap" for i in range(4))
    seen = Seen(names, keys, link, zeros.astype(np.uint8), zeros, zeros, ("10.0.0.1",))
    for seeds, told in (
        (SeedRange(0, 2000), "✓ Linux policy 1, seed 500"),
        (SeedRange(0, 9), "▲ No hash fits all flows"),
    ):
        result = recover_all(
            [Direction("from 10.0.0.0/24", seen)], Wanted("linux", seeds=seeds), ["x"], None
        )
        text = printed(lambda page, result=result: fill_recovery(page, result))
        assert "PACKETS FROM 10.0.0.0/24" in text and told in text
        assert "spine3.pcap" in text and "Tried: linux policy 1" in text


# The table of `--vary`.

REPLAY_VARIED_FABRIC = "leaf-spine:leaves=2,spines=2,hosts=2,rate=100G"


def _text(request: ReplayRequest, vary: str, words: bool = False) -> str:
    out = io.StringIO()
    fill_replay(page_on(out), replay_varied(request, [vary])[0])
    return " ".join(out.getvalue().split()) if words else out.getvalue()


def test_rows_and_the_fastest_case() -> None:
    request = ReplayRequest(REPLAY_VARIED_FABRIC, ("jsq",), jobs=("workers=4,size=64kB",))
    text = _text(request, "jobs.size=64kB,256kB")
    best_of = r"jobs\.size=64kB, (.*) us: (.*) % less than the worst, jobs\.size=256kB, (.*) us\."
    told = re.search(best_of, " ".join(text.split()))
    assert told is not None
    best, less, worst = map(float, told.groups())
    assert best < worst and less == pytest.approx(100 * (1 - best / worst), abs=0.3)
    rows = [line.split() for line in text.splitlines() if line.startswith(("64kB ", "256kB "))]
    assert len(rows) == 4 and rows[0][:2] == ["64kB", "jsq"]  # completion, then times of jobs
    assert "lost" not in text and "pauses" not in text
    csv = encode(replay_varied(request, ["jobs.size=64kB,256kB"])[0], "csv").decode()
    assert csv.splitlines()[0].startswith("jobs.size,name,title,parameters,completion_ns")
    assert len(csv.splitlines()) == 3


def test_no_case_completes() -> None:
    request = ReplayRequest(
        REPLAY_VARIED_FABRIC, ("jsq",), pattern="incast:fan-in=3,message-size=256kB"
    )
    text = _text(request, "buffer=20kB,30kB", words=True)
    assert "2 cases; packets are lost, and no case completes: --transport recovers them." in text


def test_whole_flows_have_no_completion() -> None:
    plain = ReplayRequest(REPLAY_VARIED_FABRIC, ("ecmp",), pattern="permutation")
    text = _text(plain, "rate=100G,200G", words=True)
    assert "busy for" in text and "completion" not in text
    assert "Best is rate=200G, the busiest link is busy for" in text
    assert "us: 50.0 % less than the worst, rate=100G, " in text


def test_one_case_is_told_to_take_several_and_equal_cases_that_they_are() -> None:
    plain = ReplayRequest(REPLAY_VARIED_FABRIC, ("ecmp",), pattern="permutation")
    text = _text(plain, "spines=2", words=True)
    assert (
        "One case: spines=2, " in text and "several values to compare: --vary spines=A,B." in text
    )
    text = _text(plain, "delay=1us,2us", words=True)
    assert "All 2 cases alike: the busiest link is busy for" in text
    several = replace_replay_varied(plain, strategies=("ecmp", "wcmp"))
    assert "All 2 cases alike: " in _text(several, "delay=1us,2us", words=True)
    text = _text(plain, "spines=2,4", words=True)
    assert "us; the busiest link has 2.00 (spines=2) to 4.00 (spines=4) times its fair" in text


def test_captured_times_are_said_to_set_the_completion() -> None:
    taps = sorted((data("leafspine") / "r01_clean_write").glob("H1*.pcap.xz"))
    fabric = "leaf-spine:leaves=2,spines=4,hosts=2,delay=500ns"
    request = ReplayRequest(fabric, ("ecmp",), tuple(map(str, taps)), map="order")
    text = _text(replace_replay_varied(request, packets=True), "rate=100G,200G", words=True)
    assert "All 2 cases alike: 1." in text
    assert "offered at their captured times" in text
    text = _text(replace_replay_varied(request, offer="asap"), "rate=100G,200G", words=True)
    assert "captured times" not in text and "Best is rate=200G, " in text


def test_the_best_strategy_is_named() -> None:
    wide = REPLAY_VARIED_FABRIC.replace("hosts=2", "hosts=8")
    request = ReplayRequest(wide, ("ecmp", "jsq"), pattern="permutation:message-size=64kB")
    text = _text(request, "spines=1,2", words=True)
    assert re.search(r"Best is spines=2 with jsq, [0-9.]+ us\. ", text)


def test_each_strategy_is_compared_with_itself() -> None:
    """What ecmp loses against jsq is not what the values change."""
    wide = REPLAY_VARIED_FABRIC.replace("hosts=2", "hosts=8")
    request = ReplayRequest(wide, ("ecmp", "jsq"), pattern="permutation:message-size=64kB")
    result = replay_varied(request, ["spines=1,2"])[0]
    out = io.StringIO()
    fill_replay(page_on(out), result)
    text = " ".join(out.getvalue().split())
    assert "ecmp: 26.0 us in all cases" in text  # whose seed puts all flows on one spine
    one, two = (case.strategies[1].compared_ns for case in result.varied)
    told = re.search(r"jsq: \S+ us with spines=2, (\S+) % less than \S+ us with spines=1", text)
    assert one is not None and two is not None and told is not None
    assert float(told[1]) == pytest.approx(100 * (1 - two.mean / one.mean), abs=0.1)
    incast = "incast:fan-in=8,message-size=64kB"
    text = _text(replace_replay_varied(request, pattern=incast), "buffer=9kB,9MB", words=True)
    for name in ("ecmp", "jsq"):
        assert re.search(rf"{name}: \S+ us in all cases; 1 of 2 cases did not complete", text)


# Numbers and titles that reports of replays share.

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


# The report of `recover-seed` ends with the command that uses its result.


def candidate(**changes: object) -> Candidate:
    values: dict[str, object] = {
        "hash": "linux", "field_set": "", "parameters": {"policy": "1"}, "seed": 305_419_896,
        "seeds": [305_419_896], "seeds_that_fit": 1, "seeds_searched": 65_536,
        "hypotheses": 2, "expected_by_chance": 1e-20, "fitted_flows": 32, "validated_flows": 16,
        "held_back_flows": 16,
    }  # fmt: skip
    return Candidate(**(values | changes))  # type: ignore[arg-type]


def printed_sweep(*switches: list[Candidate], asked_of: str | None = None) -> str:
    found = [
        SwitchRecovery(
            direction="from H1", links=["a", "b"], flows=48, flows_on_several_links=0,
            flows_per_link=[24, 24], candidates=candidates, flows_needed={}, conclusion="found",
        )
        for candidates in switches
    ]  # fmt: skip
    result = RecoverResult(version="0", sources=[], switches=found, tried=[], warnings=[])
    stream = io.StringIO()
    fill_recovery(page_on(stream, "never"), result, asked_of=asked_of)
    return stream.getvalue()


def test_one_command_for_both_directions_of_a_switch() -> None:
    text = printed_sweep([candidate()], [candidate()])
    line = "rocescope replay FILE... --fabric FABRIC -s "
    words = "ecmp:hash=linux,policy=1,seed=305419896,per-switch=equal"
    assert text.count(line) == 1 and f"  {line}{words}\n" in text


def test_the_command_after_asking_a_switch_has_no_placeholder() -> None:
    text = printed_sweep([candidate()], asked_of="my fabric.yaml")
    line = "  rocescope replay --pattern permutation --fabric 'my fabric.yaml' -s ecmp:hash=linux,"
    assert line in text and "FILE" not in text and "FABRIC" not in text


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hash": "crc32", "field_set": "src+udp[13:3]", "parameters": {}, "seed": 7},
        {"hash": "crc32", "field_set": "4-tuple", "parameters": {"symmetric": "yes"}, "seed": 7},
    ],
    ids=["linux", "bytes of UDP", "symmetric"],
)
def test_the_line_for_the_fabric_file_is_read_back(
    changes: dict[str, object], tmp_path: Path
) -> None:
    found = candidate(**changes)
    text = printed_sweep([found], [found])
    (line,) = (line for line in text.splitlines() if line.startswith("  hash: "))
    file = tmp_path / "fabric.yaml"
    file.write_text(f"fabric: leaf-spine:leaves=2\nnodes:\n  leaf1:\n  {line}\n")
    own, other = parse_fabric(str(file)).hash_settings[:2]
    assert other is None and own is not None and own.seed_recovered
    told = settings_of(found)
    assert told is not None and own == replace_sweep(told, seed=found.seed or 0)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hash": "crc32", "field_set": "5-tuple", "parameters": {}, "seed": 7},
        {"hash": "crc32", "field_set": "4-tuple", "parameters": {"symmetric": "yes"}, "seed": 7},
    ],
    ids=["linux", "crc32", "symmetric"],
)
def test_the_strategy_has_the_seed_on_every_switch(changes: dict[str, object]) -> None:
    found = candidate(**changes)
    fabric = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=2")
    name, _, options = strategy_words(found).partition(":")
    assert parse_strategy(f"{name}:{options}").name == "ecmp"
    parsed = dict(one.split("=", 1) for one in options.split(","))
    hashing = switch_hashing(fabric, parsed, "ecmp")
    assert {settings.seed for settings in hashing.settings} == {found.seed}
    assert {settings.model for settings in hashing.settings} == {found.hash}


def test_no_command_without_a_seed() -> None:
    assert "rocescope replay" not in printed_sweep(
        [candidate(seed=None, seeds=[], seeds_that_fit=0)]
    )


# The report of `aggregate`.


def test_the_report_names_the_fastest_and_what_is_assumed():
    jobs, fabric = small_jobs("count=2,workers=3,fragments=100,window=32,iterations=2")
    schemes = parse_schemes(["atp", "esa", "ideal", "none"])
    result = aggregation_result(schemes, [48], jobs, fabric, Conditions(0), 1)
    page = io.StringIO()
    fill_aggregation(page_on(page, "never"), result, top=2)
    text = page.getvalue()
    assert "2 jobs, 6 workers, 1 run" in text
    fastest = min(result.schemes[:2], key=lambda one: one.mean_completion_ns or 0)
    assert verdict_aggregate(result).startswith(
        f"{fastest.name} 48 is the fastest with limited memory"
    )
    assert "no aggregation takes" in verdict_aggregate(result)
    for heading in ("SCHEMES", "COMPLETION TIMES OF JOBS", "BUSIEST LINKS", "ASSUMED"):
        assert heading in text
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_a_ring_is_said_to_have_no_losses(loss: float):
    jobs, fabric = small_jobs("count=1,workers=3,fragments=100,window=32,iterations=1")
    schemes = parse_schemes(["atp:rto=50us", "ring"])
    result = aggregation_result(schemes, [48], jobs, fabric, Conditions(0, loss=loss), 1)
    assert bool(result.schemes[0].lost) == bool(loss)
    assert (
        "ring all-reduce among the workers without these losses" in verdict_aggregate(result)
    ) == bool(loss)
