"""Answers of the agent from its last reading."""

from __future__ import annotations

import threading

import msgspec
import pytest
from waiting import until

from rocescope.agent import agent as under_test
from rocescope.agent.adapters import Adapters
from rocescope.agent.agent import Agent
from rocescope.agent.readings import Readings
from rocescope.agent.server import Request
from rocescope.analyzer.errors import CaptureError, UsageError


@pytest.fixture
def readings(tmp_path):
    return Readings(["eth2"], None, Adapters(tmp_path))


def ask(agent, path, accept="", **query):
    return agent.answer(Request(path, query, accept))


def test_answers(readings):
    agent = Agent(readings, 5)
    metrics = ask(agent, "/metrics")
    assert metrics.content_type.startswith("text/plain; version=0.0.4")
    assert b'rocescope_blind{device="eth2",reason="not_attached"} 1.0' in metrics.body
    assert b"rocescope_data_age_seconds" in metrics.body and b"process_cpu" in metrics.body
    accept = "application/openmetrics-text; version=1.0.0"
    body = ask(agent, "/metrics", accept).body
    assert body.endswith(b"# EOF\n") and body.count(b"# EOF") == 1
    for path, field in (
        ("/flows", "flows"),
        ("/queue-pairs", "queue_pairs"),
        ("/diagnosis", "findings"),
    ):
        assert msgspec.json.decode(ask(agent, path).body)[field] == []
    assert ask(agent, "/healthy").status == 200
    assert b"/metrics" in ask(agent, "/").body
    assert ask(agent, "/etc/passwd").status == 404


def test_versions_that_are_no_number_get_text(readings):
    answer = ask(Agent(readings, 5), "/metrics", "application/openmetrics-text; version=x")
    assert answer.content_type.startswith("text/plain") and b"rocescope_blind" in answer.body


def test_metrics_are_encoded_once_per_reading(readings, monkeypatch):
    agent = Agent(readings, 5)
    calls = []
    whole = under_test.families

    def counted(state):
        calls.append(1)
        return whole(state)

    monkeypatch.setattr(under_test, "families", counted)
    for _ in range(5):
        ask(agent, "/metrics")
    assert len(calls) == 1


@pytest.mark.parametrize("top", ["0", "-1", "x", "201", "9" * 30, "", "²"])
def test_bad_numbers(readings, top):
    with pytest.raises(UsageError, match="1 to 200"):
        ask(Agent(readings, 5), "/flows", top=top)


def test_the_list_of_queue_pairs_may_be_longer(readings):
    agent = Agent(readings, 5)
    assert ask(agent, "/queue-pairs", top="4096").status == 200
    with pytest.raises(UsageError, match="1 to 4096"):
        ask(agent, "/queue-pairs", top="4097")


def test_old_readings_are_not_healthy(readings, monkeypatch):
    agent = Agent(readings, 0.1)
    now = under_test.time.monotonic()
    monkeypatch.setattr(under_test.time, "monotonic", lambda: now + 60)
    assert ask(agent, "/healthy").status == 503


def test_slow_readings_are_recent_for_longer(readings, monkeypatch):
    agent = Agent(readings, 0.1)
    cpu = iter([0.0, 0.5])
    monkeypatch.setattr(under_test.time, "thread_time", lambda: next(cpu))
    agent.run(agent.stop)
    assert b"rocescope_interval_seconds 30.0" in ask(agent, "/metrics").body
    now = under_test.time.monotonic()
    for age, status in ((80, 200), (110, 503)):
        monkeypatch.setattr(under_test.time, "monotonic", lambda age=age: now + age)
        assert ask(agent, "/healthy").status == status


def test_it_reads_until_it_is_stopped(readings, monkeypatch):
    times = []

    def read():
        times.append(1)
        return ["finding"]

    monkeypatch.setattr(readings, "read", read)
    recorded = []
    agent = Agent(readings, 0.01, recorded.append)
    thread = threading.Thread(target=agent.run)
    thread.start()
    until(lambda: len(times) >= 3)
    agent.stop()
    thread.join(300)
    assert not thread.is_alive() and len(recorded) == len(times)


def test_it_ends_when_nothing_is_left(readings, monkeypatch):
    monkeypatch.setattr(Readings, "all_gone", True)
    with pytest.raises(CaptureError, match="all interfaces have disappeared"):
        Agent(readings, 0.01).run()
