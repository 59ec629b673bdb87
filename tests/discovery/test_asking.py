"""What a request holds."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from rocescope.discovery import asking as namespaces
from rocescope.discovery.asking import Namespaces, Query, Request, batch, is_port, ports_of

# What a request holds.


def test_a_request_has_no_input_by_default():
    assert Request("leaf1", "ip -j link").stdin == b""


# Commands in network namespaces.


@pytest.fixture
def prefix(need_tool):
    need_tool("ip")
    name = f"rsask{os.getpid()}"
    subprocess.run(["ip", "netns", "add", f"{name}leaf1"], check=True)
    yield name
    subprocess.run(["ip", "netns", "del", f"{name}leaf1"], check=True)


@pytest.mark.usefixtures("root")
def test_output_failures_and_missing_namespaces(prefix):
    asked = b"link show lo\nlink show nothing\n"
    good, partial, missing = Namespaces(prefix)(
        [
            Request("leaf1", "ip -j -s link"),
            Request("leaf1", "ip -j -force -batch -", asked),
            Request("leaf2", "ip -j link"),
        ]
    )
    assert b'"ifname":"lo"' in good.output
    assert not good.problem
    assert b'"ifname":"lo"' in partial.output
    assert partial.problem == "exit status 1: Command failed -:2"
    assert not missing.output
    assert "Cannot open network namespace" in missing.problem


@pytest.mark.usefixtures("root")
def test_a_command_without_end(prefix, monkeypatch):
    monkeypatch.setattr(namespaces, "SECONDS", 0.1)
    (said,) = Namespaces(prefix)([Request("leaf1", "ip monitor")])
    assert said.problem == "not finished within 0.1 s"


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("moment", ["before", "while it begins"])
def test_no_command_listens_after_close(prefix, monkeypatch, moment):
    run, reasons = Namespaces(prefix), []
    begun, begin = [], subprocess.Popen

    def started(*args, **more):
        closing = threading.Thread(target=run.close)
        begun.append(begin(*args, **more))
        closing.start()
        closing.join(0.2)
        return begun[0]

    if moment == "before":
        run.close()
    else:
        monkeypatch.setattr(subprocess, "Popen", started)
    thread = threading.Thread(
        target=lambda: reasons.append(run.listen("leaf1", "ip monitor link", lambda: None)),
        daemon=True,
    )
    thread.start()
    try:
        until(lambda: reasons)
        assert reasons[0].startswith("closed" if moment == "before" else "exit status -9")
    finally:
        for process in [*begun, *run._listening]:
            process.kill()


@pytest.mark.usefixtures("root")
def test_a_command_that_does_not_end_is_listened_to(root, need_tool):
    need_tool("ip")
    name = f"rsfollow{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        run, heard = Namespaces("rsfollow"), []
        thread = threading.Thread(
            target=lambda: heard.append(
                run.listen(str(os.getpid()), "ip monitor link", lambda: heard.append("heard"))
            )
        )
        thread.start()
        until(lambda: heard)
        states = itertools.cycle(("up", "down"))

        def told():  # `ip monitor` does not tell when it listens
            command = ["ip", "-n", name, "link", "set", "lo", next(states)]
            subprocess.run(command, check=True)
            return len(heard) > 1

        until(told)
        run.close()
        thread.join()
        assert heard[-1].startswith("exit status -9")
        assert set(heard[:-1]) == {"heard"}
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


# Batches of `ip route get`, and answers to be read with care.


def query(dst="10.2.1.2", sport=50000, port="swp1", src="10.1.1.2"):
    return Query(ip_address(src), ip_address(dst), sport, 4791, port)


def line(dst="10.2.1.2", dev="up1", port="swp1", src="10.1.1.2", more=""):
    return f'[{{"dst":"{dst}","from":"{src}","dev":"{dev}","iif":"{port}","flags":[]{more}}}]'


def test_one_line_per_query():
    assert batch([query(), query("fd00::1", 7, src="fd00::2")]) == (
        b"route get 10.2.1.2 from 10.1.1.2 iif swp1 ipproto udp sport 50000 dport 4791\n"
        b"route get fd00::1 from fd00::2 iif swp1 ipproto udp sport 7 dport 4791\n"
    )


def test_a_failed_query_does_not_shift_the_others():
    queries = [query("10.9.1.2"), query(sport=1), query(sport=2), query(port="swp2")]
    answers = "\n".join([line(dev="up1"), line(dev="up2"), line(dev="up3", port="swp2")])
    assert ports_of(queries, answers.encode()) == [None, "up1", "up2", "up3"]


def test_too_few_answers_for_one_way_are_none():
    queries = [query(sport=1), query(sport=2), query("fd00::1", src="fd00::2")]
    answers = "\n".join([line(), line("fd00::1", "up9", src="fd00::2")])
    assert ports_of(queries, answers.encode()) == [None, None, "up9"]


@pytest.mark.parametrize("more", [',"type":"local"', ',"flags":["offload"]'])
def test_answers_of_no_use(more):
    text = line(more=more).replace(',"flags":[],', ",") if "offload" in more else line(more=more)
    assert ports_of([query()], text.encode()) == [None]


@given(st.binary(max_size=200), st.integers(0, 3))
def test_anything_else_is_no_answer(noise, place):
    lines = [line().encode()]
    noise = noise.replace(b"\n", b"").replace(b"\r", b"")
    lines.insert(place, noise)
    assert ports_of([query()], b"\n".join(lines)) in (
        [["up1"]] if b"dev" not in noise else [["up1"], [None]]
    )


@pytest.mark.parametrize("name", ["", "up1 up2", "#up1", "-4", "up\n1", 'u"p', "a" * 49])
def test_names_that_do_not_go_into_a_batch(name):
    assert not is_port(name)
    assert is_port("up1.100")
