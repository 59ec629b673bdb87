"""Commands and filters for other programs: read again they are the same options."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.commands.analyze import analyze
from rocescope.commands.options.reading import Reading
from rocescope.commands.plain_words import arguments_of
from rocescope.tui.session.snapshots.snapshot import FlowKey
from rocescope.tui.session.words.command_words import analyze_command, wireshark_filter

KEY = FlowKey("10.0.0.1", "10.0.0.2", 0x11)


@pytest.mark.parametrize(
    "reading",
    [
        Reading(),
        Reading(concat=True, usid="48:16", flow_label="outer"),
        Reading(udp_port=[4971, 5000], plane_by="segment:2", trimmed_dscp=[4, 5]),
        Reading(clock="hardware", drop_duplicates="20us", filter="cnp or psn in {1..5}"),
        Reading(mirror_format="lumina"),
    ],
)
def test_the_command_gives_the_options_again(reading):
    options = reading.options(["it's.pcap"], {"it's.pcap": "up 1"} if not reading.concat else {})
    words = shlex.split(analyze_command(["it's.pcap"], [], options, None))
    assert words[:3] == ["rocescope", "analyze", "it's.pcap"]
    files, given = arguments_of(analyze, words[2:])
    again = given.get("reading", Reading())
    paths, names = [str(file) for file in files], dict(options.tap_names)
    assert again.tap == (["up 1=it's.pcap"] if names else None)
    assert again.options(paths, names) == options


def test_one_flow_and_interfaces():
    command = analyze_command([], ["eth2"], AnalyzeOptions(filter="cnp"), KEY)
    assert command == (
        "rocescope analyze --live eth2 --filter "
        "'cnp and src == 10.0.0.1 and dst == 10.0.0.2 and qp == 0x000011'"
    )


def test_tshark_takes_the_display_filter(need_tool):
    tshark = need_tool("tshark")
    for key in (KEY, FlowKey("fd00::1", "fd00::2", 0x11)):
        words = [tshark, "-Y", wireshark_filter(key), "-r", "/dev/null"]
        said = subprocess.run(words, capture_output=True, text=True, check=False).stderr
        assert "filter" not in said.lower().replace("isn't a capture file", "")
