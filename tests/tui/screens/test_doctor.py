"""Screen D: what the capture can tell."""

from __future__ import annotations

import subprocess

from captures import data
from tui_driver import drive, text_of, typed


def test_one_tap_is_not_several(tmp_path, need_tool):
    """A pcapng of one interface names it: one.pcapng:0."""
    one = tmp_path / "one.pcapng"
    editcap = [need_tool("editcap"), "-r", data("c10_rping_ipv4"), one, "1-50"]
    subprocess.run(editcap, check=True, capture_output=True)
    pair = sorted((data("leafspine") / "r01_clean_write").glob("leaf1-spine*.pcap.gz"))
    for captures, several in (([one], False), (pair, True)):
        assert ("several taps" in "\n".join(drive(captures, ["D"], look=text_of))) == several


def test_a_missing_file_is_said_before_a_filter(tmp_path):
    """Whatever the filter, there are no flows to pass it."""
    keys = ["slash", typed("src==10.0.0.1"), "enter"]
    text = "\n".join(drive([tmp_path / "none.pcap"], keys, start="qps", look=text_of))
    assert "X  retries" in text and "no flow passes the filter" not in text
