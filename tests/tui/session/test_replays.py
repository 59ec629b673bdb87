"""Work in its own thread: progress, errors, stopping."""

from __future__ import annotations

import asyncio
import io
import json
import queue
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from answers import routers_of
from captures import data
from router_namespaces import ip
from traced_lab import lab, units_of
from tui_driver import drive, press, settled, text_of
from waiting import until

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.asking import Namespaces
from rocescope.discovery.tracing.paths import trace_paths
from rocescope.replay.aggregation.request import AggregationRequest
from rocescope.replay.compare.flows import replay
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.seeded import SeedRange
from rocescope.replay.results import AS_CAPTURED
from rocescope.replay.seeds.recover import ALL_SEEDS
from rocescope.replay.strategies.registry import STRATEGIES, parse_strategy
from rocescope.replay.traffic.observed import traffic_from_capture
from rocescope.report.terminal.page import page_on
from rocescope.report.terminal.replay import fill_replay
from rocescope.tui.app import RocescopeApp
from rocescope.tui.screens.fabric import fim_line, none_traced, packets_sentence
from rocescope.tui.screens.replay import sentence, shown_columns
from rocescope.tui.session.matrix import ROWS, at_one_place, path_matrix
from rocescope.tui.session.placed import Followed, Point, Traced, TracedOn, traceable, traced
from rocescope.tui.session.replays import (
    SEEDS,
    STOPPING,
    Aggregations,
    Background,
    Replays,
    ReplayView,
    fitting_fabric,
    observed_rate,
    with_words,
)
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import TRACED
from rocescope.tui.strips import StripAxis, strip

# Work in its own thread: progress, errors, stopping.

# Work in its own thread: progress, errors, stopping.


@dataclass(frozen=True)
class View:
    running: str = ""
    done: float = 0.0
    error: str = ""


class Work(Background[View]):
    def __init__(self) -> None:
        super().__init__("work", View())

    def start(self, work: Callable[[], None]) -> None:
        self._stopping.clear()
        self._tell(running="step", done=0.5)
        self._start(work)

    def until_stopped(self) -> None:
        self._stopping.wait()


def test_work_that_ended_shows_no_step() -> None:
    work = Work()
    work.start(lambda: None)
    work.wait()
    assert (work.view, work.running) == (View(), False)


def test_stop_says_so_until_the_work_ends() -> None:
    work, may_end = Work(), threading.Event()

    def go() -> None:
        work.until_stopped()
        may_end.wait()

    work.start(go)
    work.stop(wait=False)
    assert (work.view.running, work.running) == (STOPPING, True)
    may_end.set()
    work.wait()
    assert work.view.running == ""


@pytest.mark.parametrize(
    ("raised", "told"),
    [(UsageError("no\n  fabric"), "no fabric"), (KeyError("x"), "KeyError: 'x'")],
)
def test_an_exception_is_told_in_one_line(raised: Exception, told: str) -> None:
    work = Work()

    def go() -> None:
        raise raised

    work.start(go)
    work.wait()
    assert work.view == View(error=told)


# Replays of real captures in the terminal UI, against the command line's own engine.

TAPS = sorted((data("leafspine") / "r09_packet_spray_h1").glob("leaf2-spine*.pcap.gz"))
I03 = [data("i03_write_reorder5_AtoB")]
FABRIC = "leaf-spine:leaves=2,spines=4,hosts=2,rate=100G,delay=500ns"


def replays():
    made = Replays([str(p) for p in TAPS])
    made.set_fabric(FABRIC)
    return made


def test_every_strategy_of_the_registry_runs_or_says_why():
    made = replays()
    made.run(["ecmp", "static", "nonsense"])
    made.wait(300)
    view = made.view
    assert (
        set(view.strategies) == {AS_CAPTURED, "ecmp", "static"}
        and "nonsense" in view.failed["nonsense"]
    )
    assert not view.running and not view.error and view.flows == 72
    carried = {
        layer: sum(link.wire_bytes for link in view.strategies["ecmp"].links if link.layer == layer)
        for layer in ("leaf-spine", "spine-leaf", "host-leaf", "leaf-host")
    }
    assert len(set(carried.values())) == 1  # every byte crosses every layer once
    assert view.strategies["static"].max_over_mean < view.strategies["ecmp"].max_over_mean


def test_what_nobody_expected_is_said_on_the_screen(monkeypatch):
    """Else a traceback is printed over it."""

    def fails(*_, **__):
        raise TypeError("sent_messages() missing\n1 required argument")

    monkeypatch.setattr("rocescope.replay.traffic.observed.traffic_from_capture", fails)
    made = replays()
    made.run(["ecmp"])
    made.wait(300)
    assert made.view.error == "TypeError: sent_messages() missing 1 required argument"
    assert sentence(made.view).startswith("Stopped: TypeError")


def test_sweeps_hold_what_was_asked_for():
    made = replays()
    made.sweep(["crc32"], 250)
    made.wait(300)
    sweep = made.view.sweeps["crc32"]
    assert sweep.seeds == [0, 250, 250]
    d = sweep.distribution
    assert 1 <= d.min <= d.quantiles["p50"] <= d.max


def test_recovered_seeds_are_used():
    """ecmp then loads every link as it was captured."""
    made = clean()
    made.run(["static"])
    made.wait(300)
    made.sweep(["linux"], 50, recover=SeedRange(0x12345600, 0x12345700))
    made.wait(300)
    view = made.view
    assert view.recovered == ("leaf1", "leaf2") and not view.error
    loads = [
        {link.name: link.wire_bytes for link in view.strategies[name].links}
        for name in (AS_CAPTURED, "ecmp")
    ]
    assert loads[0].items() <= loads[1].items()
    production = view.sweeps["linux"].production
    assert production is not None
    assert production.value == pytest.approx(view.strategies[AS_CAPTURED].max_over_mean)


def clean():
    run = data("leafspine") / "r01_clean_write"
    made = Replays([str(path) for path in sorted(run.glob("leaf1-spine*.pcap.gz"))])
    made.set_fabric(FABRIC)
    return made


def test_strategies_use_recovered_seeds_without_a_sweep():
    made = clean()
    made.run(["ecmp"], recover=SeedRange(0x12345600, 0x12345700))
    made.wait(300)
    view = made.view
    assert view.recovered == ("leaf1", "leaf2") and not view.sweeps and not view.error
    captured, ecmp = (view.strategies[name].max_over_mean for name in (AS_CAPTURED, "ecmp"))
    assert ecmp == pytest.approx(captured)


def test_what_is_asked_during_a_search_comes_first():
    """The search of all seeds takes a minute; it continues with the next strategies."""
    made = clean()
    made.run(["static"], recover=ALL_SEEDS)
    while made.view.running != "seeds of the switches":
        time.sleep(0.005)
    made.run(["ecmp"])
    made.wait(300)
    assert set(made.view.strategies) == {AS_CAPTURED, "static", "ecmp"}
    assert not made.view.recovered and not made.view.running and not made.view.error


def test_nonsense_fabrics_are_refused():
    with pytest.raises(UsageError):
        Replays(["x.pcap"]).set_fabric("spline:leaves=2")


def test_missing_captures_become_one_line():
    made = Replays(["/nowhere/x.pcap"])
    made.set_fabric(FABRIC)
    made.run(["ecmp"])
    made.wait(300)
    assert "no such file" in made.view.error


@pytest.mark.parametrize("hosts", [1, 2, 5, 64, 200])
def test_a_fabric_that_fits(hosts):
    made = Replays(["x.pcap"])
    made.set_fabric(fitting_fabric(hosts, 47_000_000))
    assert made._prepared.fabric.hosts >= hosts
    assert set(made._prepared.fabric.links.rate_bits_per_second.tolist()) == {47_000_000}


def test_the_observed_rate_is_that_of_the_busiest_host():
    src = np.array([0, 1, 0], np.uint32)
    activity = np.array([[1000, 900, 0], [500, 1200, 601]], np.int64)  # host 0: 1000, 1101
    assert observed_rate(activity, src, 1_000_000) == 9_600_000  # host 1: 1,200 bytes in 1 ms
    assert observed_rate(activity[:, ::2], src[::2], 1_000_000) == 8_900_000
    assert observed_rate(np.zeros((0, 0), np.int64), src[:0], 1) == 1000


def test_the_screens_show_strategies_and_links():
    def finish(app):
        app.view.replays.wait(300)
        app.screen.redraw()

    shown = []
    drive(
        TAPS,
        [
            "9",
            lambda app: app.view.replays.set_fabric(FABRIC),
            lambda app: app.view.replays.run(["ecmp", "static"]),
            finish,
            lambda app: shown.append("\n".join(text_of(app))),
            "p",
            "j",
            "enter",
            lambda app: shown.append("\n".join(text_of(app))),
        ],
    )
    assert "as captured loads its busiest link 1." in shown[0]
    assert any(line.lstrip("▌ ").startswith("as captured") for line in shown[0].splitlines())
    assert " minus " in shown[1] and "leaf-spine" in shown[1]
    assert all(name in STRATEGIES for name in ("ecmp", "static"))


def test_a_strip_shows_where_values_lie():
    axis = StripAxis(1.0, 2.0, 41)
    quantiles = {"p5": 1.2, "p25": 1.3, "p50": 1.5, "p75": 1.7, "p95": 1.8}
    line = strip(axis, 1.1, 1.9, quantiles, {"▲": 1.0})
    assert len(line) == 41
    assert line.index("├") == 4 and line.index("┤") == 36
    assert line.index("█") == 20 and line[0] == "▲"
    assert line[8] == "▒" and line[12] == "▓" and line[28] == "▓" and line[32] == "▒"
    assert strip(axis, 1.5, 1.5, dict.fromkeys(quantiles, 1.5)).count("█") == 1


def test_packets_stop_inside_a_strategy(monkeypatch):
    for driver in ("open_loop", "event_driven"):
        monkeypatch.setattr(f"rocescope.replay.packets.{driver}.HOPS_AT_ONCE", 50)

    class Impatient(Replays):
        def _tell(self, **changes):
            super()._tell(**changes)
            if self.view.running.startswith("ecmp") and self.view.done > 0:
                seen.append(self.view.done)
                self._stopping.set()

    seen = []
    made = Impatient([str(p) for p in TAPS])
    made.set_fabric(FABRIC)
    made.by_packets(["ecmp", "static"])
    made.wait(300)
    view = made.view
    assert set(view.strategies) == {AS_CAPTURED}
    assert not view.failed and not view.error and not view.running
    assert 0 < seen[0] < 0.5 and len(seen) == 1  # in the middle of the first


def test_packet_by_packet():
    made = replays()
    made.by_packets(["switch-rr", "nosuch"])
    made.wait(300)
    assert list(made.view.strategies) == [AS_CAPTURED, "switch-rr by packet"]
    result = made.view.strategies["switch-rr by packet"]
    assert result.completion_time_ns >= result.lower_bound_ns > 0
    assert result.max_queue_packets > 0 and result.packets.received.packets > 0
    assert "no strategy" in made.view.failed["nosuch by packet"]
    shown = [column.key for column in shown_columns(made.view)]
    assert {"done", "time", "queue", "order"} <= set(shown)
    text = packets_sentence("switch-rr by packet", result)
    assert "; completed in " in text and "times the lower bound" in text
    assert text.startswith("switch-rr by packet: leaf1>spine3 carries 1.03 times its fair share")
    assert f"{result.max_queue_packets:,} packet" in text and "% late" in text
    factor = result.completion_time_ns / result.lower_bound_ns
    told = f"packet by packet switch-rr completes first, in {factor:.2f} times the lower bound"
    assert told in sentence(made.view)


def test_jobs_in_place_of_the_captures():
    made = Replays(["/nowhere/x.pcap"])
    made.set_words(f"{FABRIC} --jobs workers=2,size=64kB --jobs workers=2,size=8kB")
    made.run(["jsq"])
    made.wait(300)
    (result,) = made.view.strategies.values()
    assert [job.name for job in result.packets.jobs] == ["job1 ring", "job2 ring"]
    slowest = max(job.over_bound_percent.mean for job in result.packets.jobs)
    assert f" ring at most in {1 + slowest / 100:.2f} times its own" in sentence(made.view)


def test_a_pattern_under_failures():
    """The words of the command line; whole flows know no failures, so packets are replayed."""
    made = Replays(["/nowhere/x.pcap"])
    words = f"{FABRIC} --pattern permutation --fail spine1@10us --model buffer=200kB,trim=64"
    made.set_words(words)
    assert made.view.options == "--pattern permutation " + words[words.index("--model") :] + (
        " --fail spine1@10us"
    )
    made.run(["ecmp", "host-spray"])
    made.wait(300)
    view = made.view
    assert not view.error and list(view.strategies) == ["ecmp by packet", "host-spray by packet"]
    packets = view.strategies["host-spray by packet"].packets
    assert packets.model["fail"] == "spine1@10us" and packets.model["recovery"] == "ideal"
    assert packets.model["trim_bytes"] == "64" and packets.model["offer"] == "pattern"
    made.set_words(f"{FABRIC} order")  # the capture again
    made.run(["ecmp"])
    made.wait(300)
    assert "no such file" in made.view.error and not made.view.options
    with pytest.raises(UsageError, match="there is no option --fial"):
        made.set_words(f"{FABRIC} --fial 1%")


def screen_7(view, size=(80, 24)):
    """Screen 7 as it shows a state of the replays."""

    def put(app):
        app.view.replays.set_fabric(FABRIC)
        app.view.replays.view = view
        app.screen.redraw()

    return drive(
        I03, ["9", put], size, look=lambda app: ("\n".join(text_of(app)), app.view.strategy)
    )


@pytest.mark.thorough
def test_what_was_asked_for_last_is_seen_while_it_is_pending():
    made = replays()
    made.run(["ecmp", "static", "assign", "wcmp", "subflow"])
    made.wait(300)
    asked = tuple(f"{name} by packet" for name in ("ecmp", "static", "reps"))
    running = replace(made.view, running="ecmp, packet by packet", done=0.2, asked=asked)
    assert running.rows[:4] == [AS_CAPTURED, *asked] and running.pending == list(asked)
    text, strategy = screen_7(running)
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("▌"))
    assert "ecmp ▪" in lines[first] and "running" in lines[first]
    assert "static ▪" in lines[first + 1] and "waiting" in lines[first + 1]
    assert "?" not in "".join(lines[first : first + 8]) and "ecmp, packet by packet" in text
    assert strategy == asked[0]
    ended = replace(running, running="")  # stopped: nothing is pending any longer
    done = [AS_CAPTURED, "ecmp", "static", "assign", "wcmp", "subflow"]
    assert ended.rows == done and not ended.pending


def test_the_end_of_a_replay_is_drawn():
    """Nobody presses a key, and a file that is read tells nothing either."""
    shown = []

    async def run():
        app = RocescopeApp(Session.open([str(p) for p in I03]))
        async with app.run_test(size=(80, 24)) as pilot:
            await settled(app, pilot)
            await press(app, pilot, ["9"])
            app.view.replays.set_fabric(FABRIC)
            app.view.replays._tell(running="250 seeds of linux", done=0.1)
            await pilot.pause(0.6)
            shown.append("\n".join(text_of(app)))
            app.view.replays._tell(running="", done=0.0)
            await pilot.pause(0.6)
            shown.append("\n".join(text_of(app)))

    asyncio.run(run())
    assert "250 seeds of linux" in shown[0] and "250 seeds of linux" not in shown[1]


def test_as_many_seeds_as_the_screen_says():
    text, _ = screen_7(ReplayView("", "order"))
    assert f"sweeps {SEEDS:,} hash seeds" in text
    assert Replays([]).sweep.__defaults__[1] == SEEDS


def test_the_explanation_of_a_path_follows_the_replay():
    """Back on screen 7 after a replay; the cursor has not moved."""

    def ecmp(app):
        app.view.replays.set_fabric("leaf-spine:leaves=2,spines=4,hosts=1")
        app.view.replays.run(["ecmp"])
        app.view.replays.wait(300)

    shown = []
    keep = lambda app: shown.append("\n".join(text_of(app)))  # noqa: E731
    drive(I03[:1], ["7", keep, "9", ecmp, "7", keep])
    assert "a replay (9) predicts it" in shown[0]
    assert "a replay (9) predicts it" not in shown[1] and "linux(" in shown[1]


# Aggregation behind its screen: the words of a prompt, runs in a thread, stops.

AGGREGATIONS_FABRIC = "leaf-spine:leaves=1,spines=1,hosts=8,rate=100G,delay=1us"
CAPTURE = str(data("c16_rc_write_bidir"))


def test_words_are_those_of_the_command():
    captured = AggregationRequest("", ("x.pcap",), map="order")
    found = with_words(
        captured, f"{AGGREGATIONS_FABRIC} exact --memory 64 --memory=128 --jitter 0 --window 32"
    )
    assert found.captures == ("x.pcap",) and found.map == "exact"
    assert found.memory == (64, 128) and found.jitter == 0.0 and found.window == 32
    jobs = with_words(captured, f"{AGGREGATIONS_FABRIC} --jobs workers=2 --scheme atp")
    assert jobs.captures == () and jobs.map == "exact" and jobs.schemes == ("atp",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "give a fabric"),
        ("a b c", "give a fabric"),
        (f"{AGGREGATIONS_FABRIC} --speed 3", "no option --speed"),
        (f"{AGGREGATIONS_FABRIC} --memory", "--memory needs a value"),
        (f"{AGGREGATIONS_FABRIC} --memory many", "--memory is a whole number"),
        (f"{AGGREGATIONS_FABRIC} --jitter x", "--jitter is a share"),
        (f"{AGGREGATIONS_FABRIC} --jitter 1 --jitter 2", "--jitter is given twice"),
        (f"'{AGGREGATIONS_FABRIC}", "No closing quotation"),
    ],
)
def test_mistakes(text, said):
    with pytest.raises(UsageError, match=said):
        with_words(AggregationRequest("", ("x.pcap",)), text)


def test_a_capture_runs_and_its_result_is_shown():
    made = Aggregations([CAPTURE])
    made.run()  # nothing before a fabric is set
    assert made.view.result is None and not made.running
    made.set_words(f"{AGGREGATIONS_FABRIC} --scheme atp --scheme ring")
    made.run()
    made.wait()
    view = made.view
    assert not view.running and not view.error and view.result is not None
    assert [one.name for one in view.result.schemes] == ["atp", "ring"]
    assert view.result.jobs[0].captured_ns


def test_errors_become_words():
    made = Aggregations([str(data("c15_rc_write_ipv6_gid"))])
    made.set_words(AGGREGATIONS_FABRIC)
    made.run()
    made.wait()
    assert "no all-reduce" in made.view.error and made.view.result is None


def test_a_stopped_run_has_no_result():
    made = Aggregations([CAPTURE])
    made.set_words(
        f"{AGGREGATIONS_FABRIC} --jobs workers=4,fragments=1000000,iterations=100,window=32"
    )
    made.run()
    made.stop()
    assert made.view.result is None and not made.view.running and not made.view.error


# Where strategies put flows: by link, by packet and as paths, against the placement itself.

# Where strategies put flows: by link, by packet and as paths, against the placement itself.

PLACED_TAPS = [
    str(path)
    for path in sorted((data("leafspine") / "r09_packet_spray_h1").glob("leaf2-spine*.pcap.gz"))
]
PLACED_FABRIC = "leaf-spine:leaves=2,spines=4,hosts=2,rate=100G,delay=500ns"
BY_CRC = "ecmp:hash=crc32,seed=5,per-switch=equal,rotate=0,reduction=modulo"


@pytest.fixture(scope="module")
def replays_placed():
    made = Replays(PLACED_TAPS)
    made.set_fabric(PLACED_FABRIC)
    made.run(["ecmp", BY_CRC, "static"])
    made.wait(300)
    assert not made.view.error and not made.view.failed
    return made


@pytest.fixture(scope="module")
def snapshot():
    session = Session.open(PLACED_TAPS)
    session.start()
    session.wait(300)
    yield session.snapshot()
    session.close()


def test_the_flows_of_a_link_carry_its_bytes(replays_placed):
    placed = replays_placed.placed["ecmp"]
    for link in replays_placed.view.strategies["ecmp"].links:
        users = placed.on_link(link.name)
        assert len(users) == link.flows
        assert sum(user.wire_bytes for user in users) == link.wire_bytes
        assert users == sorted(users, key=lambda user: -user.wire_bytes)
        for user in users:
            assert link.name in placed.way(user.key, user.entropy)
    assert placed.on_link("no>where") == []


def test_predicted_paths_are_the_loads_of_the_uplinks(replays_placed, snapshot):
    columns = replays_placed.placed["ecmp"].path_columns(snapshot)
    assert columns.trust == "predicted"
    loads = {columns.name(int(k)): 0 for k in columns.key}
    for key, size in zip(columns.key.tolist(), columns.wire_bytes.tolist(), strict=True):
        loads[columns.name(key)] += size
    links = {link.name: link for link in replays_placed.view.strategies["ecmp"].links}
    for name, size in loads.items():
        assert name.startswith("leaf") and ">spine" in name
        # The replay places flows; what was lost on the way and acknowledgements count there too.
        assert size == pytest.approx(links[name].wire_bytes, rel=0.02), name
    assert (columns.width[columns.seen() > 0] >= 1 - 1e-9).all()


def test_the_explanation_is_the_hash(replays_placed):
    """CRC-32 of the 5-tuple, computed by zlib, modulo the number of uplinks."""
    placed = replays_placed.placed[BY_CRC]
    user = placed.on_link("leaf1>spine1")[0]
    (line,) = placed.why(user.key, user.entropy)
    assert line.startswith("leaf1>spine1: crc32(5-tuple, seed 0x5) = 0x")
    assert line.endswith(", modulo 4 -> 0")
    value = int(line.partition("= 0x")[2][:8], 16)
    assert value % 4 == 0
    fields = bytes(map(int, user.key.src.split("."))) + bytes(map(int, user.key.dst.split(".")))
    fields += b"\x11" + user.entropy.to_bytes(2, "big") + (4791).to_bytes(2, "big")
    # The seed is XORed into the start value; zlib's start is given as the value before.
    assert value == zlib.crc32(fields, 5)


def test_what_is_not_known_is_said(replays_placed):
    placed = replays_placed.placed["static"]
    user = placed.on_link("leaf1>spine1")[0]
    (line,) = placed.why(user.key, user.entropy)
    assert line == "leaf1>spine1: static selects link 1 of 4"
    assert "no host" in placed.why(user.key._replace(src="192.0.2.1"), user.entropy)[0]
    assert placed.way(user.key._replace(qp=1), user.entropy) == []


def test_flows_that_were_not_replayed_have_no_predicted_path(replays_placed, snapshot):
    columns = replays_placed.placed["ecmp"].path_columns(snapshot)
    assert len(columns.starts) == len(snapshot.flows) + 1
    assert np.all(np.diff(columns.starts) >= 0)


PLACED_I03 = [str(data("i03_write_reorder5_AtoB"))]
ONE_PAIR = "leaf-spine:leaves=2,spines=4,hosts=1,rate=100G,delay=500ns"


def i03_replayed(app):
    app.view.replays.set_fabric(ONE_PAIR)
    app.view.replays.run(["ecmp", "static"])
    app.view.replays.wait(300)
    app.screen.redraw()


@pytest.mark.thorough
def test_all_screens_and_the_command_say_the_same_of_a_link():
    """Four similar flows; two of them on one of four spines are about twice its fair share."""
    shown = {}

    def keep(name):
        return lambda app: shown.update({name: " ".join(" ".join(text_of(app)).split())})

    keys = ["9", i03_replayed, keep(7), "0", keep(8), "4", "p", keep(2)]
    result = drive(PLACED_I03, keys, look=lambda app: app.view.replays.view.strategies["ecmp"])
    command = io.StringIO()
    parsed = parse_fabric(ONE_PAIR)
    traffic = traffic_from_capture(PLACED_I03, parsed, "order")
    fill_replay(page_on(command), replay(traffic, parsed, [parse_strategy("ecmp")], PLACED_I03))
    assert "2.00 times" in " ".join(command.getvalue().split())
    assert f"{result.max_over_mean:.2f}" == "2.00"
    assert "ecmp" in shown[7] and "2.00 times the fair share" in shown[7]
    assert "leaf1>spine3 carries 2.00 times its fair share" in shown[8]
    assert "leaf1>spine3 carries 2.00 times its fair share" in shown[2]
    assert "fair 25 %" in shown[2] and "1.0/4" in shown[2] and "spine1" in shown[2]
    # By hand, from the bytes of the flows.
    link = next(one for one in result.links if one.name == "leaf1>spine3")
    up = sum(one.wire_bytes for one in result.links if one.name.startswith("leaf1>spine"))
    assert link.over_mean == pytest.approx(link.wire_bytes / (up / 4))


def test_predicted_paths_hold_idle_links_and_fair_shares(replays_placed, snapshot):
    columns = replays_placed.placed["ecmp"].path_columns(snapshot)
    used = columns.seen() > 0
    assert (columns.seen()[used] % 4 == 0).all()  # four spines, whether used or not
    assert (columns.packets == 0).any()
    starts = columns.starts[:-1][used]
    carried = np.add.reduceat(columns.wire_bytes, starts)
    assert np.add.reduceat(columns.fair, starts) == pytest.approx(carried)
    for flow in np.flatnonzero(used)[:20]:
        fair = columns.fair[columns.of(int(flow))]
        assert fair == pytest.approx(np.full(len(fair), fair.mean()))


@pytest.mark.parametrize("measure", ["bytes", "packets", "late"])
def test_fair_shares_do_not_depend_on_what_a_row_is(replays_placed, snapshot, measure):
    columns = replays_placed.placed["ecmp"].path_columns(snapshot)
    flows = np.arange(len(snapshot.flows))
    by = {rows: path_matrix(snapshot, columns, flows, rows, measure, 100) for rows in ROWS}
    for matrix in by.values():
        assert matrix.fair.sum(axis=1) == pytest.approx(matrix.loads.sum(axis=1))
        assert matrix.fair.sum(axis=0) == pytest.approx(by["QP"].fair.sum(axis=0))


def test_paths_that_are_only_seen_in_use_are_fair_when_equal(snapshot):
    flows = np.arange(len(snapshot.flows))
    by_tap = at_one_place(snapshot.paths["tap"], None)
    matrix = path_matrix(snapshot, by_tap, flows, "pair", "bytes", 100)
    assert matrix.fair == pytest.approx(np.tile(matrix.loads.mean(axis=1), (4, 1)).T)


# Traced paths on the screens, and FIM over time while real routers change.

FILES = sorted((data("leafspine") / "r01_clean_write").glob("H[13]*.pcap.xz"))


@pytest.fixture
def spec(tmp_path):
    topology = data("leafspine") / "r01_clean_write" / "topology.json"
    return f"linux:{routers_of(json.loads(topology.read_text()), tmp_path)}"


def test_paths_are_those_of_trace(spec):
    fabric = parse_fabric(spec)
    traffic = traffic_from_capture([str(file) for file in FILES], fabric)
    found = traced(traffic, fabric)
    paths = trace_paths(traffic, fabric)
    assert found.flows == len(traffic)
    assert found.known == np.count_nonzero(~paths.placement.dropped) > 0
    links = {link.name: link.flows for link in found.result.links}
    known = paths.placement.links[~paths.placement.dropped]
    for link, flows in zip(*np.unique(known[known >= 0], return_counts=True), strict=True):
        assert links[fabric.link_name(int(link))] == flows


def test_without_a_hash_nothing_is_traceable(spec):
    assert traceable(parse_fabric(spec))
    assert not traceable(parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2,rate=10G"))


@pytest.mark.thorough
@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
def test_the_screens_show_them(spec, size):
    def begin(app):
        app.view.trace_on(TracedOn(spec, None, {}))
        app.view.replays.wait(300)
        app.switch_mode("fabric")

    def look(app):
        fabric = "\n".join(text_of(app))
        placed = app.view.placed()
        return fabric, placed.text, placed.path_columns(app.view.snapshot).trust

    fabric, placed, trust = drive([str(file) for file in FILES], [begin], size=size, look=look)
    assert placed == trust == TRACED
    assert "traced / fair share" in fabric
    assert " traced: " in fabric or " traced (" in fabric
    assert "FIM over time" not in fabric


@pytest.mark.thorough
def test_paths_begins_with_traced_links(spec):
    """They appear on the screen that is shown, as soon as they are known."""

    def begin(app):
        app.view.trace_on(TracedOn(spec, None, {}))
        app.switch_mode("paths")

    def traced_now(app):
        app.view.replays.wait(300)
        app.screen._while_tracing()

    steps = [begin, traced_now]
    text = drive([str(file) for file in FILES], steps, look=lambda app: "\n".join(text_of(app)))
    assert "paths traced" in text
    assert "only hint at paths" not in text


@pytest.mark.thorough
@pytest.mark.usefixtures("root")
def test_fim_over_time(need_tool, tmp_path):
    need_tool("ip")
    with lab() as routers:
        fabric = routers.fabric(tmp_path / "answers")
        told: queue.Queue[tuple[Point, Traced | None, int]] = queue.Queue()
        failed = []
        followed = Followed(
            Namespaces(routers.prefix), {}, lambda *one: told.put(one), failed.append
        )
        followed.begin(units_of(routers.flows(64, 4), fabric), fabric)
        try:
            first, before, _ = told.get(timeout=300)
            assert "following 4 switches" in first.text
            ip(["route del 10.2.1.0/24"], routers.name("spine1"))
            point, after, _ = told.get(timeout=300)
        finally:
            followed.stop()
        assert "spine1 changed" in point.text
        assert point.seconds > first.seconds
        assert after.known < before.known == after.flows == 64
        assert after.result.name == TRACED
        assert failed == []
        line = fim_line(ReplayView("x", "exact", followed=(first, point)), 70).plain
        assert line.startswith("FIM over time ")
        assert f"{point.fim_percent:.1f} % now" in line
        until(lambda: not followed._follow._line._listening)


def test_paths_that_are_not_known_any_more_are_not_shown(spec):
    replays = Replays([str(file) for file in FILES])
    replays.set_fabric(spec)
    replays.trace()
    replays.wait(300)
    known, flows = replays.view.traced
    assert known
    assert TRACED in replays.placed
    assert none_traced(replays.view) == ""
    replays._moved(Point(1.0, None, "s1 changed"), None, flows)
    assert TRACED not in {**replays.view.strategies, **replays.placed}
    assert replays.view.traced == (0, flows)
    assert none_traced(replays.view) == f"No traced path is known ({flows} flows). "


def test_columns_of_equal_time():
    points = (Point(0.0, 10.0, "a"), Point(9.0, 20.0, "b"), Point(10.0, None, "c\x1b[2J"))
    line = fim_line(ReplayView("x", "exact", followed=points), 60).plain
    assert "unknown now (10.0 to 20.0)" in line
    assert "\x1b" not in line
