"""Aggregation behind its screen: the words of a prompt, runs in a thread, stops."""

from __future__ import annotations

import pytest
from captures import data

from rocescope.analyzer.errors import UsageError
from rocescope.replay.aggregation.request import AggregationRequest
from rocescope.tui.session.replays.aggregations import Aggregations, with_words

FABRIC = "leaf-spine:leaves=1,spines=1,hosts=8,rate=100G,delay=1us"
CAPTURE = str(data("c16_rc_write_bidir"))


def test_words_are_those_of_the_command():
    captured = AggregationRequest("", ("x.pcap",), map="order")
    found = with_words(captured, f"{FABRIC} exact --memory 64 --memory=128 --jitter 0 --window 32")
    assert found.captures == ("x.pcap",) and found.map == "exact"
    assert found.memory == (64, 128) and found.jitter == 0.0 and found.window == 32
    jobs = with_words(captured, f"{FABRIC} --jobs workers=2 --scheme atp")
    assert jobs.captures == () and jobs.map == "exact" and jobs.schemes == ("atp",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "give a fabric"),
        ("a b c", "give a fabric"),
        (f"{FABRIC} --speed 3", "no option --speed"),
        (f"{FABRIC} --memory", "--memory needs a value"),
        (f"{FABRIC} --memory many", "--memory is a whole number"),
        (f"{FABRIC} --jitter x", "--jitter is a share"),
        (f"{FABRIC} --jitter 1 --jitter 2", "--jitter is given twice"),
        (f"'{FABRIC}", "No closing quotation"),
    ],
)
def test_mistakes(text, said):
    with pytest.raises(UsageError, match=said):
        with_words(AggregationRequest("", ("x.pcap",)), text)


def test_a_capture_runs_and_its_result_is_shown():
    made = Aggregations([CAPTURE])
    made.run()  # nothing before a fabric is set
    assert made.view.result is None and not made.running
    made.set_words(f"{FABRIC} --scheme atp --scheme ring")
    made.run()
    made.wait()
    view = made.view
    assert not view.running and not view.error and view.result is not None
    assert [one.name for one in view.result.schemes] == ["atp", "ring"]
    assert view.result.jobs[0].captured_ns


def test_errors_become_words():
    made = Aggregations([str(data("c15_rc_write_ipv6_gid"))])
    made.set_words(FABRIC)
    made.run()
    made.wait()
    assert "no all-reduce" in made.view.error and made.view.result is None


def test_a_stopped_run_has_no_result():
    made = Aggregations([CAPTURE])
    made.set_words(f"{FABRIC} --jobs workers=4,fragments=1000000,iterations=100,window=32")
    made.run()
    made.stop()
    assert made.view.result is None and not made.view.running and not made.view.error
