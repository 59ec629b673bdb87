"""Roles of users who can only read."""

from __future__ import annotations

import re

from rocescope.discovery.dialects.eos import EOS
from rocescope.discovery.dialects.junos import JUNOS
from rocescope.discovery.gate import gate_script


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
