"""Options of captures."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.commands.options.capturing import Capturing, Until
from rocescope.commands.options.reading import Selection


def test_options_of_the_probes():
    made = Capturing("pid:7", "xdp", 128, "64M").options(Selection([5000], "cnp"), sample=4)
    assert (made.namespace, made.hook, made.snap_bytes, made.sample) == ("pid:7", "xdp", 128, 4)
    assert made.ring_bytes == 64 << 20
    assert (made.udp_ports, made.filter) == ((4791, 5000), "cnp")
    assert Capturing().options(Selection()).ring_bytes is None
    with pytest.raises(UsageError, match="--ring"):
        Capturing(ring="large").options(Selection())


def test_the_end_of_a_capture():
    assert (Until().seconds, Until("1500ms", 1).seconds) == (None, 1.5)
    with pytest.raises(UsageError, match="--count must be 1 or more"):
        Until(count=0).seconds  # noqa: B018 - a property that checks
    with pytest.raises(UsageError, match="--duration"):
        Until("soon").seconds  # noqa: B018
