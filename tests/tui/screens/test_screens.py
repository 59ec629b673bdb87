"""The screen of in-network aggregation, on a capture and on jobs that are asked for."""

from __future__ import annotations

import json
import re
import subprocess

import factories_results as factories
import msgspec
import pytest
from captures import data
from job_logs import LOSSY, write_logs
from rings import measured, ring
from tui_driver import Still, drive, each, text_of, typed

from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.tui.screens import paths, reorder
from rocescope.tui.screens.ranks import NOTHING, pair_cells
from rocescope.tui.session.judged import Judged
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import Snapshot, SourceState

# The screen of in-network aggregation, on a capture and on jobs that are asked for.

CAPTURE = [data("c16_rc_write_bidir")]
WORDS = (
    "leaf-spine:leaves=1,spines=1,hosts=16,rate=100G,delay=1us order --memory 40 --memory 256 "
    "--jobs count=2,workers=3,fragments=200,window=32 --scheme atp --scheme none --scheme tree"
)


def run(app):
    found = app.view.aggregations
    found.set_words(WORDS)
    found.run()
    found.wait()
    app.screen.redraw()


def test_schemes_and_the_jobs_of_the_one_under_the_cursor():
    empty, first, last = each(
        CAPTURE, ["A"], [run], ["down", "down", "down"], look=text_of, size=(80, 24)
    )
    assert "No scheme has run yet" in empty[2]
    assert any("r  sums the gradients" in line for line in empty)
    assert "completes jobs first" in first[2] and "tree all-reduce takes" in " ".join(first[2:4])
    rows = [line.strip("▌ ").split()[:2] for line in first]
    for row in (["atp", "40"], ["atp", "256"], ["none", "-"], ["tree", "-"]):
        assert row in rows
    assert any(line.strip().startswith("slots used") for line in first)
    assert any("job2 comm: 3 workers" in line for line in first)
    assert any("the division of compute time" in line for line in first)
    assert not any("ring and tree" in line for line in first)
    assert any(line.strip() == "tree" for line in last)
    assert any("assumed: ring and tree" in line for line in last)
    assert not any(line.strip().startswith("slots used") for line in last)


def test_a_mistake_in_the_prompt_is_told():
    def mistake(app):
        assert not app.screen._set("no-such-fabric")

    lines = each(CAPTURE, ["A"], [mistake], look=text_of, size=(100, 30))[-1]
    assert any("No scheme has run yet" in line for line in lines)


# Screen D: what the capture can tell.


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


# Screen 7: PSNs, the taps that a packet passed, and tables without a packet.

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


# Screen 4: what is no fault is not red.

LEAFSPINE = data("leafspine")
ECMP = sorted((LEAFSPINE / "r01_clean_write").glob("leaf1-spine*.pcap.gz"))
SPRAYED = sorted((LEAFSPINE / "r09_packet_spray_h1").glob("leaf2-spine*.pcap.gz"))


def drawn_row(screen, row):
    """The cells of a row of the map, as they are written."""
    return [text for text, _ in screen._cells(screen._matrix, row)[1]]


def cells(captures):
    """Styles of all cells of the map by tap, and the text of the screen."""

    def look(app):
        grid = app.screen.query_one("#heat")
        rows = [app.screen._cells(app.screen._matrix, row)[1] for row in range(grid.row_count)]
        return {style for row in rows for _, style in row}, "\n".join(text_of(app))

    return drive(captures, ["4"], (110, 40), look)


def test_single_paths_are_no_hot_spots_where_no_flow_sprays():
    styles, text = cells(ECMP)
    assert styles == {"accent", "dim"} and "■ only path" in text


def test_the_only_path_of_a_flow_is_below_the_name_of_its_link():
    """One mark per row, in the column of the link that carries the flow; the others have dots."""

    def look(app):
        screen, matrix = app.screen, app.screen._matrix
        rows = range(screen.query_one("#heat").row_count)
        return screen._cell, matrix.loads, [drawn_row(screen, row) for row in rows]

    width, loads, rows = drive(ECMP, ["4"], (110, 40), look)
    assert len(rows) > 1
    for texts, load in zip(rows, loads, strict=True):
        marks = ["■" if carried else "·" for carried in load]
        assert marks.count("■") == 1
        assert texts == [f"{mark.rjust(width - 1)} " for mark in marks]


def test_nor_where_few_flows_spray():
    """Four of 36 flows spray: their cells are shares, those of the others are not."""
    styles, text = cells(SPRAYED)
    assert styles == {"accent", "dim", "fair"} and "■ only path" in text


def test_they_are_where_most_traffic_is_sprayed(monkeypatch):
    monkeypatch.setattr(paths, "SPRAYS_FROM_WIDTH", 1.0)
    styles, text = cells(SPRAYED)
    assert "hot3" in styles and "only path" not in text


def test_taps_are_told_apart_where_their_names_do_not_fit():
    """Four links of each leaf at 80 columns: the legend names the numbers above the map."""
    run = data("whole_leafspine") / "r03_link_down_reroute"
    captures = sorted(run.glob("leaf?-spine*.pcap.xz"))
    text = "\n".join(drive(captures, ["4"], (80, 24), text_of))
    assert " p0 p1 p2 p3 p4 p5 p6 p7 " in text
    for number, name in enumerate(path.name.split(".")[0] for path in captures):
        assert f"p{number}={name}" in text
    assert "p0=" not in "\n".join(drive(captures, ["4"], (200, 24), text_of))


def test_short_heads_differ():
    """Numbers of links only where the rest of their names is the same."""
    assert paths._heads(["port-49153", "port-49154"], 2) == ["53", "54"]
    assert paths._heads(["port-49153", "port-50153"], 2) == ["p0", "p1"]
    assert paths._heads(["leaf1-up1", "spine2-up2"], 2) == ["p0", "p1"]


def test_a_measure_that_is_nowhere_says_so():
    sentences = []
    keep = lambda app: sentences.append(text_of(app)[2].strip())  # noqa: E731
    drive([data("c05_rc_atomic_fetchadd")], ["4", "v", "v", keep, "v", keep])
    assert sentences == ["No packet is marked CE.", "No packet is late."]


# Screen 2: the flow under the table.


@pytest.mark.parametrize("size", [(80, 24), (110, 40)])
def test_the_chart_of_bytes_has_a_time_axis(size):
    lines = drive([data("i03_write_reorder5_AtoB")], [], size, text_of)
    chart = next(i for i, line in enumerate(lines) if "this flow, bytes" in line)
    axis = next(line for line in lines[chart + 1 :] if "╵" in line)
    ticks = [float(tick) for tick in re.findall(r"╵([\d.]+) ", axis)]
    assert len(ticks) > 1 and ticks == sorted(ticks) and ticks[0] == 0


# The screen of ranks, on a real capture with logs of its queue pairs, and on written rings.


def test_the_pair_with_its_losses_leads_to_its_flows(tmp_path):
    logs = AnalyzeOptions(job_logs=(write_logs(tmp_path, data(LOSSY).parent),))
    session = Session.open([str(data(LOSSY))], logs)
    ranks, flows = each([], ["K"], ["enter"], look=text_of, session=session, size=(80, 24))
    assert "Data passes between 1 pair of ranks" in ranks[2]
    row = next(line for line in ranks if line.startswith("▌")).split()
    assert row[1:4] == ["11", "3", "34.1"] and "125" in row
    assert "enter deeper  v matrix" in ranks[-1]
    assert "src_rank == 11 and dst_rank == 3" in flows[2]
    assert sum("10.0.0.1" in line and "10.0.0.2" in line for line in flows) == 4


def test_without_logs_it_says_how_to_get_ranks():
    lines = drive([data("c15_rc_write_ipv6_gid")], ["K"], (80, 24), text_of)
    assert "No logs of the job were given" in lines[2]
    assert "deeper" not in lines[-1] and "matrix" not in lines[-1] and "? help" in lines[-1]
    assert any(NOTHING in line for line in lines)
    assert any("rocescope tui capture.pcap --nccl-log 'logs/*'" in line for line in lines)


def test_a_live_session_without_logs_says_how_to_give_them():
    source = SourceState("eth2", "live", running=True)
    judged = Judged(diagnosis=factories.diagnosis(), why="")
    lines = drive(
        [], ["K"], (80, 24), text_of, session=Still(source, Snapshot(source, judged=judged))
    )
    assert any("rocescope live eth2 --nccl-log 'logs/*'" in line for line in lines)


def test_logs_of_another_job_say_why_they_name_no_rank(tmp_path):
    logs = AnalyzeOptions(job_logs=(write_logs(tmp_path, data(LOSSY).parent),))
    session = Session.open([str(data("c15_rc_write_ipv6_gid"))], logs)
    lines = drive([], ["K"], (80, 24), text_of, session=session)
    assert "name no two ranks of a flow here" in lines[2]
    assert "logs of another job, or of other hosts?" in " ".join(" ".join(lines).split())


@pytest.fixture(scope="module")
def still():
    """Rank 2 of 20 arrives 5 ms after the others in each of three collectives."""
    ranks = measured(ring(20, 3, lambda rank, _: 5_000_000 * (rank == 2) + rank))
    judged = Judged(job_ranks=ranks, final=True)
    return Still(
        SourceState("ring", "capture", running=False), Snapshot(SourceState("", ""), judged=judged)
    )


@pytest.mark.thorough
@pytest.mark.parametrize(("size", "shown"), [((80, 24), 5), ((160, 50), 13)])
def test_arrival_and_matrix_fit_and_say_what_is_left_out(still, size, shown):
    both, matrix = each([], ["K"], ["v"], look=text_of, session=still, size=size)
    text = " ".join(" ".join(both).split())
    assert "3 of 3" in text and "5.00 ms" in text
    assert any(line.split()[:3] == ["from", "/", "to"] for line in both) == (size[1] > 30)
    head = next(line for line in matrix if "from / to" in line)
    assert len(head.split()) - 3 == shown
    assert f"{20 - shown} ranks not shown" in " ".join(" ".join(matrix).split())


def test_cells_name_unknown_numbers():
    (pair, *_) = measured(ring(2, 1, lambda *_: 0)).pairs
    cells = pair_cells(pair)
    assert cells[5] == cells[6] == "?"  # nobody acknowledges


@pytest.mark.thorough
def test_queue_pairs_have_their_ranks_where_logs_name_them(tmp_path):
    logs = AnalyzeOptions(job_logs=(write_logs(tmp_path, data(LOSSY).parent),))
    session = Session.open([str(data(LOSSY))], logs)
    lines = drive([], [], (80, 24), text_of, session=session)
    head = next(line for line in lines if "SOURCE" in line)
    assert "RANKS" in head and "RETRANS" in head and "b/s" not in head
    assert sum("11>3" in line for line in lines) == 4
    events = drive([], ["8"], (100, 24), text_of, session=session)
    assert any("RANKS" in line and "FRAME" in line for line in events)
    assert any("11>3" in line or "3>11" in line for line in events)
    assert "RANKS" not in " ".join(drive([data(LOSSY)], [], (80, 24), text_of))


@pytest.mark.parametrize(("taps", "names"), [({"up1": 9, "up2": 1}, ["up1"]), ({"up1": 10}, None)])
def test_late_packets_are_told_by_link_where_several_links_are_seen(taps, names):
    flow = factories.sprayed_flow(0)
    links = factories.spraying([factories.path("up1", 10, 1.0, 3)], 1.0)
    links = msgspec.structs.replace(links, path_by="tap", inferred=False)
    flow = msgspec.structs.replace(flow, taps=taps, spraying=[*flow.spraying, links])
    ports = [share.path for share in flow.paths]
    assert [share.path for share in reorder.paths_of(flow)] == (names or ports)
