"""What line 1 says where there is little room."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tui_driver import in_app

from rocescope.tui.session.snapshot import PathColumns, Snapshot, SourceState
from rocescope.tui.topbar import Tabs, TopBar

SOURCE = SourceState(
    "a_capture_with_a_long_name.pcap.gz",
    "capture",
    running=False,
    frames=30_000,
    truncated=25_362,
    packets_per_second=27_388.0,
    bits_per_second=220e6,
)


@pytest.mark.parametrize(
    ("width", "whole", "says"),
    [
        (200, True, ("27,388 pkt/s", "220 Mb/s", "drops unknown", "25,362 truncated")),
        (100, True, ("220 Mb/s", "drops ?", "25,362 cut")),
        (80, False, ("220 Mb/s", "drops ?", "25,362 cut")),
    ],
)
def test_line_1_says_it_in_fewer_words_before_it_says_less(width, whole, says):
    bar = TopBar()

    def look():
        bar.show(Snapshot(SOURCE), PathColumns.none(), False, "", "")
        return str(bar.render())

    line = in_app(bar, width, look)
    assert len(line) <= width and "paths inferred" in line
    assert all(part in line for part in says)
    assert (SOURCE.name in line) == whole


@pytest.mark.parametrize(
    "source",
    [
        SOURCE,
        replace(SOURCE, dropped=1_234, undecodable=77),
        replace(SOURCE, kind="live", running=True, dropped=0, recording="night.pcapng"),
    ],
)
def test_what_says_how_far_data_is_to_be_trusted_stays(source):
    bar = TopBar()

    def look():
        bar.show(Snapshot(source), PathColumns.none(), False, "1.25 s to 2.50 s", "")
        return str(bar.render())

    line = in_app(bar, 80, look)
    drops = "drops ?" if source.dropped is None else "dropped"
    bad = ["77 undec"] if source.undecodable else ["25,362 cut"]
    assert len(line) <= 80
    assert all(part in line for part in ("1.25 s to 2.50 s", drops, "paths inferred", *bad)), line


@pytest.mark.parametrize(
    ("done", "total", "says"), [(46, 100, "■ stopped at 46 %"), (46, None, "■ stopped early")]
)
def test_what_was_not_read_to_its_end_is_said(done, total, says):
    bar = TopBar()
    source = replace(SOURCE, stopped_early=True, bytes_done=done, bytes_total=total)

    def look():
        bar.show(Snapshot(source), PathColumns.none(), False, "", "")
        return str(bar.render())

    assert says in in_app(bar, 80, look)


@pytest.mark.parametrize(
    ("width", "says"), [(80, "A Agg"), (120, "A Aggr"), (200, "A Aggregation")]
)
def test_a_further_screen_stands_in_the_line_while_it_is_shown(width, says):
    tabs = Tabs()

    def look(screen):
        tabs.show(screen, {})
        return str(tabs.render())

    shown, other = in_app(tabs, width, lambda: (look("aggregation"), look("ranks")))
    assert says in shown and "K Ran" not in shown
    assert "K Ran" in other and says not in other
    assert max(len(shown), len(other)) <= width
