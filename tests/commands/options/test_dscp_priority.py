"""--dscp-priority."""

from __future__ import annotations

import pytest

from rocescope import cli
from rocescope.analyzer.errors import UsageError
from rocescope.commands.options.dscp_priority import parse_dscp_priorities


@pytest.mark.parametrize(
    ("text", "priorities"),
    [("26=3", {26: 3}), ("26=3, 48=6,0=0", {26: 3, 48: 6, 0: 0}), ("1=2,1=2", {1: 2})],
)
def test_pairs(text, priorities):
    assert parse_dscp_priorities(text) == priorities


@pytest.mark.parametrize(
    "text", ["", "26", "26=8", "64=1", "-1=1", "a=b", "26=3,,1=1", "1=2,1=3", "\x1b[31m=1"]
)
def test_anything_else_is_one_clear_error(text):
    with pytest.raises(UsageError, match="--dscp-priority") as error:
        parse_dscp_priorities(text)
    assert "\x1b" not in str(error.value)


def test_no_pair_at_all_is_an_error_of_the_command(capsys):
    assert cli.run(["analyze", "x.pcap", "--dscp-priority", ""]) == 2
    assert "--dscp-priority '': give DSCP=PRIORITY" in capsys.readouterr().err
