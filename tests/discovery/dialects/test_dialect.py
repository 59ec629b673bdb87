"""Commands of dialects are constants that only read."""

from __future__ import annotations

import pytest

from rocescope.discovery.dialects.registry import DIALECTS


@pytest.mark.parametrize("name", list(DIALECTS))
def test_commands_are_plain_and_answers_have_files_of_their_own(name):
    questions = DIALECTS[name].questions_for("host")
    assert len({q.suffix for q in questions}) == len({q.command for q in questions})
    assert len({q.suffix for q in questions}) == len(questions)
    for question in questions:
        assert not set(question.command) & set(";|&$`<>(){}\\\n*")
        program = question.command.split()[0].rpartition("/")[2]
        assert program in ("ip", "sysctl", "lldpctl", "rdma", "vtysh")
        assert question.why
