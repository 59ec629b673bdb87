"""How captures are read."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.commands.options.reading import Ports, Reading, ReadingInTasks


def test_ports_besides_4791():
    assert Ports().udp_ports == (4791,)
    assert Ports([4971, 5000]).udp_ports == (4791, 4971, 5000)


def test_options_of_an_analysis():
    made = Reading(usid="48:16", filter="cnp", trimmed_dscp=[5], concat=True).options(["a"], {})
    assert (made.usid.block_bits, made.usid.usid_bits) == (48, 16)
    assert (made.filter, made.trimmed_dscps, made.concat) == ("cnp", (5,), True)
    assert made.mirror is None and not made.follow


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filter": "psn ="}, "filter: "),
        ({"usid": "33:16"}, "is not a uSID format"),
        ({"plane_by": "moon"}, "--plane-by"),
        ({"follow": True, "concat": True}, "--follow reads one growing file"),
        ({"follow": True, "tap": ["(?P<tap>.*)"]}, "--follow reads one file"),
        ({"clock": "hardware", "mirror_format": "lumina"}, "--clock hardware cannot be combined"),
    ],
)
def test_mistakes_are_told_before_a_file_is_opened(options, message):
    with pytest.raises(UsageError, match=message):
        Reading(**options).options(["/none"], {})


def test_names_and_one_tap():
    with pytest.raises(UsageError, match="--tap cannot be combined with --concat"):
        ReadingInTasks(concat=True).options(["a"], {"a": "up"})
