"""Roles of users who can only read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from rocescope.commands.discover import DialectName
from rocescope.commands.table import COMMANDS
from rocescope.discovery.dialects.eos import EOS
from rocescope.discovery.dialects.junos import JUNOS
from rocescope.discovery.dialects.registry import DIALECTS
from rocescope.discovery.follow import gate_script

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
