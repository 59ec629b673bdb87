"""The commands of linux."""

from __future__ import annotations

import subprocess

import pytest

from rocescope.discovery.dialects.linux import LINUX


@pytest.mark.parametrize("question", [q for q in LINUX.questions if q.command.startswith("ip ")])
def test_ip_knows_the_commands(question, need_tool):
    need_tool("ip")
    done = subprocess.run(question.command.split(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
