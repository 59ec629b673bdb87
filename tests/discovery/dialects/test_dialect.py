"""Roles of users who can only read."""

from __future__ import annotations

import json
import re
import tracemalloc
from pathlib import Path
from typing import get_args

import pytest
from answers import connected, port, route

from rocescope.analyzer.errors import UsageError
from rocescope.commands.discover import DialectName
from rocescope.commands.table import COMMANDS
from rocescope.discovery.dialects.dialect import Question
from rocescope.discovery.dialects.eos import EOS
from rocescope.discovery.dialects.junos import JUNOS
from rocescope.discovery.dialects.reading import (
    Entry,
    Reader,
    Told,
    address,
    mac,
    mac_or_text,
    match_only,
    network,
    number,
    own_address,
    port_name,
    weight,
)
from rocescope.discovery.dialects.registry import DIALECTS, read_all_counters
from rocescope.discovery.follow import gate_script
from rocescope.discovery.port_counters import Bytes, Port
from rocescope.replay.fabrics.sources import load_json

# Roles of users who can only read.

# Roles of users who can only read.


def test_eos_permits_the_whole_commands_and_denies_the_rest():
    lines = gate_script(EOS, "reader").splitlines()
    rules = [line.split(" command ")[1] for line in lines if " permit mode exec command " in line]
    assert len(rules) == len(EOS.questions)
    for question, rule in zip(EOS.questions, rules, strict=True):
        assert re.fullmatch(rule, question.command)
        assert not re.fullmatch(rule, question.command.replace(" | ", " x "))
        assert not re.match(rule, question.command + " > flash:x")
    denied = [i for i, line in enumerate(lines) if line.endswith("deny command .*")]
    assert denied == [max(i for i, line in enumerate(lines) if " permit " in line) + 1]


def test_junos_denies_nothing_by_a_pattern_which_would_come_before_what_is_allowed():
    lines = gate_script(JUNOS, "reader").splitlines()
    assert "set system login class reader permissions []" in lines
    assert not any("deny" in line or "permissions view" in line for line in lines)
    (allowed,) = [line for line in lines if "allow-commands-regexps" in line]
    assert all(one.command.partition(" |")[0] in allowed for one in JUNOS.questions)


# Commands of dialects are constants that only read.

_OF_A_CLI = re.compile(r"(show|display) [a-z0-9 /-]+( \| (json|display json))?")


@pytest.mark.parametrize("name", list(DIALECTS))
def test_commands_are_plain_and_answers_have_files_of_their_own(name):
    questions = DIALECTS[name].questions_for("host")
    assert len({q.suffix for q in questions}) == len({q.command for q in questions})
    assert len({q.suffix for q in questions}) == len(questions)
    for question in questions:
        assert question.why
        if DIALECTS[name].role is not None:
            assert _OF_A_CLI.fullmatch(question.command)
            continue
        assert not set(question.command) & set(";|&$`<>(){}\\\n*")
        program = question.command.split()[0].rpartition("/")[2]
        known = ("ip", "sysctl", "lldpctl", "rdma", "vtysh", "sonic-db-dump", "cat", "nv", "curl")
        assert program in known


@pytest.mark.parametrize("name", [n for n, d in DIALECTS.items() if d.role is not None])
def test_roles_hold_every_command_and_no_other_permission(name):
    dialect = DIALECTS[name]
    text = dialect.role(tuple(q.command for q in dialect.questions), "reader")
    for question in dialect.questions:
        assert question.command.partition(" |")[0] in text.replace("\\", "")
    assert "reader" in text
    assert "enable" not in text


def test_every_dialect_has_its_name_in_the_command():
    assert get_args(DialectName) == tuple(DIALECTS)


def test_what_never_met_a_device_says_so():
    assert [name for name, dialect in DIALECTS.items() if dialect.met] == ["linux", "frr"]
    assert "not tested on devices" in COMMANDS["discover"].note
    page = (Path(__file__).parents[3] / "docs" / "discovery.md").read_text()
    for name, dialect in DIALECTS.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` | "))
        assert row.endswith("| not tested on a device |") is not bool(dialect.met)


# Strict parsers of answers.

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
        ("\n" * 4_000_001, "s.b.text has more than 4,000,000 lines"),
    ],
    ids=["line", "lines"],
)
def test_texts_without_end_are_refused(text, told, tmp_path):
    (tmp_path / "s.b.text").write_text(text)
    reader = Reader(tmp_path, "s", QUESTIONS)
    assert reader.text("b.text", list) is None
    assert reader.problems == (f"`show b`: {told}",)


def test_a_long_answer_is_read_up_to_its_limit(tmp_path):
    line = "x" * 99 + "\n"
    (tmp_path / "s.b.text").write_text(line * 200_000)
    count = Reader(tmp_path, "s", QUESTIONS).text("b.text", lambda lines: sum(1 for _ in lines))
    assert count == 200_000
    reader = Reader(tmp_path, "s", QUESTIONS, 16 << 20)
    assert reader.text("b.text", list) is None
    assert reader.problems == ("`show b`: s.b.text: larger than 16 MiB",)


def test_odd_rows_are_counted_and_the_first_is_told(tmp_path):
    (tmp_path / "s.b.text").write_text("1\nx\x1b\n2\ny\n")

    def parse(lines, rows):
        numbers = []
        for line in lines:
            with rows:
                numbers.append(number(line.text, "a number", 9, line))
        return numbers

    reader = Reader(tmp_path, "s", QUESTIONS)
    assert reader.text_rows("b.text", parse) == [1, 2]
    first = "`show b`: s.b.text:2: expected a number up to 9, found 'x\\x1b'"
    assert reader.problems == (f"{first}; this row and 1 more left out",)
    (tmp_path / "s.b.text").write_text("x\ny\n")
    reader = Reader(tmp_path, "s", QUESTIONS)
    assert reader.text_rows("b.text", parse) is None
    assert reader.problems == ("`show b`: s.b.text:1: expected a number up to 9, found 'x'",)


def test_an_answer_of_odd_rows_without_end_is_refused(tmp_path):
    (tmp_path / "s.b.text").write_text("1\n" + "x\n" * 100_002)

    def parse(lines, rows):
        for line in lines:
            with rows, rows:
                number(line.text, "a number", 9, line)

    reader = Reader(tmp_path, "s", QUESTIONS)
    assert reader.text_rows("b.text", parse) is None
    (line,) = reader.problems
    assert line.endswith(
        "s.b.text:2: expected a number up to 9, found 'x'; more than 100,000 odd rows"
    )


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


# The registry of dialects.


def test_dialects_are_found_by_their_name():
    assert list(DIALECTS) == ["linux", "frr", "sonic", "cumulus", "eos", "nxos", "junos", "vrp"]
    assert all(dialect.name == name for name, dialect in DIALECTS.items())


def test_counters_of_several_systems_in_one_folder(tmp_path):
    ports = {"Ethernet1": {"interfaceCounters": {"inOctets": 7, "outOctets": 9}}, "Vxlan1": {}}
    (tmp_path / "a.eos-interfaces.json").write_text(json.dumps({"interfaces": ports}))
    row = {"interface": "Ethernet1/1", "eth_inbytes": "5", "eth_outbytes": "6"}
    table = {"TABLE_interface": {"ROW_interface": row}}
    (tmp_path / "b.nxos-interfaces.json").write_text(json.dumps(table))
    expected = {Port("a", "Ethernet1"): Bytes(9, 7), Port("b", "Ethernet1/1"): Bytes(6, 5)}
    assert read_all_counters(tmp_path) == expected
    stats = {"rx": {"bytes": 1}, "tx": {"bytes": 2}}
    link = [{"ifname": "swp1", "stats64": stats}]
    (tmp_path / "c.link.json").write_text(json.dumps(link))
    assert read_all_counters(tmp_path) == {**expected, Port("c", "swp1"): Bytes(2, 1)}


@pytest.mark.parametrize("value", [-1, "many", None, 1 << 70])
def test_odd_counters_are_named(value, tmp_path):
    ports = {"Ethernet1": {"interfaceCounters": {"inOctets": value, "outOctets": 9}}}
    (tmp_path / "a.eos-interfaces.json").write_text(json.dumps({"interfaces": ports}))
    with pytest.raises(UsageError, match=r"a\.eos-interfaces\.json: .*inOctets"):
        read_all_counters(tmp_path)


def test_a_folder_without_counters(tmp_path):
    with pytest.raises(UsageError, match=r"has no NAME\.link\.json"):
        read_all_counters(tmp_path)
