"""Screen 7: PSNs, the taps that a packet passed, and tables without a packet."""

from __future__ import annotations

import json
import re

from captures import data
from tui_driver import drive, text_of

NODES = json.loads((data("leafspine") / "r01_clean_write" / "topology.json").read_text())["nodes"]
TAPS = sorted((data("whole_leafspine") / "r03_link_down_reroute").glob("*.pcap.xz"))


def lines_of(captures, keys, size=(80, 24)):
    return drive(captures, keys, size, text_of)


def test_psns_are_decimal_and_hexadecimal_at_80_columns():
    lines = lines_of([data("i03_write_reorder5_AtoB")], ["7"])
    rows = [match for line in lines if (match := re.search(r" (\d+) 0x([0-9a-f]{6}) RC_", line))]
    assert len(rows) > 4
    assert all(int(row[1]) == int(row[2], 16) for row in rows)


def test_the_taps_that_a_packet_passed_are_named_in_order():
    """The way of a packet through both leaves and a spine, by the addresses of its hosts."""
    hosts = {one["ipv4"]: node for node, one in NODES.items() if "ipv4" in one}
    lines = lines_of(TAPS, ["7"], (110, 32))
    src, dst = re.search(r"(\S+) > (\S+) 0x", lines[2]).groups()
    way = next(line for line in lines if "source port" in line)
    links = rf"{hosts[src]}-(leaf\d) > \1-(spine\d) > (leaf\d)-\2 > {hosts[dst]}-\3 "
    assert re.search(f"seen at {links}", way) and "a replay (9) predicts it" not in way


def test_a_table_without_packets_keeps_no_packet():
    """Every packet of the clean run is in order."""
    lines = "\n".join(lines_of([data("c04_rc_read_q4_64k")], ["7", "l"]))
    assert "no packet" in lines
    assert "source port" not in lines and "Base Transport Header" not in lines
    assert "0000 " not in lines


def test_notes_and_long_gaps_keep_what_tells_them_apart():
    """Whether the first copy was lost or seen is the end of the note."""
    lines = lines_of([data("n05_rc_write_lat_timeouts")], ["7", "l"], (100, 30))
    rows = [line for line in lines if " RC_WRITE_ONLY " in line]
    assert rows and all(row.rstrip(" ▁▂▃▄▅▆▇█").endswith("copy seen") for row in rows)
    assert "…" not in "".join(row.partition("0x")[0] for row in rows)
