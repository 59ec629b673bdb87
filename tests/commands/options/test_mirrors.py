"""Options of mirrors."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.commands.options.mirrors import mirror_options


def test_packets_as_captured():
    assert mirror_options("capture", None, None, None) is None


def test_what_is_restored(tmp_path):
    file = tmp_path / "switch.yml"
    file.write_text("counter: {ingress: {1: 2}, egress: {2: 2}}")
    found = mirror_options("capture", "lumina", "20us", file)
    assert (found.clock, found.format, found.drop_duplicates_ns) == ("capture", "lumina", 20_000)
    assert found.switch_counters.ingress == {"1": 2}
    assert mirror_options("hardware", None, None, None).clock == "hardware"


def test_options_that_need_or_exclude_another(tmp_path):
    with pytest.raises(UsageError, match="--switch-counters needs --mirror-format lumina"):
        mirror_options("capture", None, None, tmp_path)
    with pytest.raises(UsageError, match="--clock hardware cannot be combined"):
        mirror_options("hardware", "lumina", None, None)
    with pytest.raises(UsageError, match="--drop-duplicates"):
        mirror_options("capture", None, "soon", None)
