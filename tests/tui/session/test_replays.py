"""Work in its own thread: progress, errors, stopping."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from captures import data
from tui_driver import drive, press, settled, text_of

from rocescope.analyzer.errors import UsageError
from rocescope.replay.aggregation.request import AggregationRequest
from rocescope.replay.hashing.seeded import SeedRange
from rocescope.replay.results import AS_CAPTURED
from rocescope.replay.seeds.recover import ALL_SEEDS
from rocescope.replay.strategies.registry import STRATEGIES
from rocescope.tui.app import RocescopeApp
from rocescope.tui.screens.fabric import packets_sentence
from rocescope.tui.screens.replay import sentence, shown_columns
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
from rocescope.tui.strips import StripAxis, strip

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
    assert "as captured loads its fullest link 1." in shown[0]
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
