"""The report of `rocescope doctor`."""

from __future__ import annotations

from rocescope.commands import doctor as command
from rocescope.probes.doctor import Check, Diagnosis


def test_lines():
    works = Diagnosis(True, [Check("kernel", "ok", "Linux 9", True), Check("tshark", "ok", "5")])
    assert command._lines(works, 80) == [
        "Needed for live capture",
        "  ok       kernel            Linux 9",
        "",
        "More",
        "  ok       tshark            5",
        "",
        "Live capture works. Start with: sudo rocescope capture IFACE -w roce.pcapng",
    ]
    ill = Diagnosis(False, [Check("bcc", "missing", "none", True, "it compiles", "apt-get x")])
    assert command._lines(ill, 80)[1:4] == [
        "  missing  bcc               none",
        " " * 29 + "- it compiles",
        " " * 29 + "> apt-get x",
    ]
