"""Strict parsers of answers."""

from __future__ import annotations

import json
import re
import tracemalloc

import pytest
from answers import connected, port, route

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.dialects.dialect import Question
from rocescope.discovery.dialects.reading import (
    Entry,
    Reader,
    Told,
    address,
    mac,
    mac_or_text,
    match_only,
    network,
    own_address,
    port_name,
    weight,
)
from rocescope.replay.fabrics.sources import load_json

QUESTIONS = (Question("a.json", "show a", "a"), Question("b.text", "show b", "b"))


def place(tmp_path, value):
    file = tmp_path / "x.json"
    file.write_text(json.dumps(value))
    return load_json(file)


def test_each_answer_is_read_on_its_own(tmp_path):
    (tmp_path / "s.a.json").write_text('{"x":')
    (tmp_path / "s.b.text").write_text("one  \ntwo\x1b[2J\n")
    reader = Reader(tmp_path, "s", QUESTIONS)
    assert reader.json("a.json", lambda top: Entry(top).text("x")) is None
    lines = reader.text("b.text", list)
    assert [line.text for line in lines] == ["one", "two\x1b[2J"]
    assert str(lines[1].wrong("no")).endswith("s.b.text:2: no")
    device = reader.device(Told(interfaces=[port("e1")]))
    (line,) = device.unexpected
    assert line.startswith("`show a`: s.a.json: not JSON")
    assert not device.tables_read


def test_a_text_that_ends_within_a_line_is_half_an_answer(tmp_path):
    (tmp_path / "s.b.text").write_text("one\ntw")
    reader = Reader(tmp_path, "s", QUESTIONS)
    assert reader.text("b.text", list) is None
    (line,) = reader.device(Told(interfaces=[])).unexpected
    assert line == "`show b`: s.b.text: ends within a line: half an answer"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("one\n" + " " * 1001 + "\n", "s.b.text:2: more than 1,000 characters in a line"),
        ("\n" * 1_000_001, "s.b.text has more than 1,000,000 lines"),
    ],
)
def test_texts_without_end_are_refused(text, told, tmp_path):
    (tmp_path / "s.b.text").write_text(text)
    reader = Reader(tmp_path, "s", QUESTIONS)
    assert reader.text("b.text", list) is None
    assert reader.problems == (f"`show b`: {told}",)


@pytest.mark.thorough
def test_lines_that_nobody_keeps_take_little_memory(tmp_path):
    (tmp_path / "s.b.text").write_text("\n" * 400_000)
    reader = Reader(tmp_path, "s", QUESTIONS)
    tracemalloc.start()
    try:
        assert reader.text("b.text", lambda lines: sum(1 for _ in lines)) == 400_000
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()


def test_no_readable_answer_is_an_error_with_its_reason(tmp_path):
    (tmp_path / "s.b.text").write_text("x\n")
    reader = Reader(tmp_path, "s", QUESTIONS)

    def refuse(lines):
        raise lines.first.wrong("expected y")

    assert reader.text("b.text", refuse) is None
    with pytest.raises(UsageError, match="`show b`: s.b.text:1: expected y"):
        reader.device(Told())


def test_a_connected_route_gets_the_own_address_of_its_port(tmp_path):
    routes = [connected("10.0.0.0/31", "e1"), route("10.2.0.0/16", ("10.0.0.1", "e1"))]
    told = Told(interfaces=[port("e1", "", "fe80::1/64", "10.0.0.0/31")], table=(routes, []))
    device = Reader(tmp_path, "s", QUESTIONS).device(told)
    assert [str(one.source) for one in device.routes] == ["10.0.0.0", "None"]
    assert device.ipv4_only


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (address, "10.0.0.300"),
        (network, "10.0.0.1/24"),
        (network, "x"),
        (address, "fe80::1%1\nreload"),
        (network, "fe80::%1\n/64"),
        (mac, "00:11:22:33:44"),
        (port_name, "eth0; reload"),
        (port_name, "-x"),
        (port_name, ""),
    ],
)
def test_odd_texts_are_refused(function, text, tmp_path):
    with pytest.raises(UsageError, match=r"x\.json: expected"):
        function(text, place(tmp_path, {}))


def test_forms_of_values(tmp_path):
    here = place(tmp_path, {"weight": "3", "rows": {"a": 1}})
    assert mac("001c.73A0.fc18", here) == mac("00-1C-73-A0-FC-18", here) == "00:1c:73:a0:fc:18"
    assert mac_or_text("001c.73a0.fc18") == "00:1c:73:a0:fc:18"
    assert mac_or_text("Ethernet1") == "Ethernet1"
    assert str(own_address("10.0.0.1", "255.255.255.0", here)) == "10.0.0.1/24"
    assert weight(None) == 1
    assert weight(Entry(here).at("weight")) == 3
    with pytest.raises(UsageError, match="expected the key 'x'"):
        Entry(here).at("x")
    with pytest.raises(UsageError, match="expected a list of objects"):
        Entry(here).each("rows")
    with pytest.raises(UsageError, match="expected an object"):
        Entry(place(tmp_path, None))


def test_the_only_port_of_an_answer():
    port = re.compile(rb"out (\w+)")
    assert match_only(port, b"out a1, out a1") == "a1"
    assert match_only(port, b"out a1, out a2") is None and match_only(port, b"") is None
