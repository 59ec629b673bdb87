"""The screen of ranks, on a real capture with logs of its queue pairs, and on written rings."""

from __future__ import annotations

import factories_results as factories
import pytest
from captures import data
from job_logs import LOSSY, write_logs
from rings import measured, ring
from tui_driver import Still, drive, each, text_of

from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.tui.screens.ranks import NOTHING, pair_cells
from rocescope.tui.session.judged import Judged
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import Snapshot, SourceState


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
