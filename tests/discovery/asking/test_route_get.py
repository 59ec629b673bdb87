"""Batches of `ip route get`, and answers to be read with care."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.discovery.asking.route_get import Query, batch, is_port, ports_of


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
