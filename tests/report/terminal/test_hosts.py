"""The report's section on owners."""

from __future__ import annotations

import io

from factories_results import analysis, flow

from rocescope.analyzer.results.flow import Owner
from rocescope.report.terminal.page import page_on
from rocescope.report.terminal.report import Report


def report(**changes) -> str:
    sink = io.StringIO()
    Report(analysis(**changes), page_on(sink)).print()
    return sink.getvalue()


def test_owners_have_a_section():
    flows = [
        flow(0, 10, owner=Owner(71, "python3", 5, "source")),
        flow(1, 20, owner=Owner(71, "python3", 5, "destination")),
        flow(2, 30, owner=Owner(72, "ib_write_bw", None)),
        flow(3, 40),
    ]
    section = report(flows=flows).partition("OWNERS\n")[2].splitlines()
    assert section[0] == "3 of 4 flows belong to 2 processes of this host."
    cells = [line.split()[-4:] for line in section[1:5]]
    assert cells == [
        ["command", "PID", "rank", "end"],
        ["ib_write_bw", "72", "-", "destination"],
        ["python3", "71", "5", "destination"],
        ["python3", "71", "5", "source"],
    ]


def test_ranks_of_logs_have_columns():
    logged = Owner(
        pid=9, command=None, rank=11, end="source", host="a\x1b[2J", peer_rank=3, comm="0xabc"
    )
    section = report(flows=[flow(0, 10, owner=logged), flow(1, 5)]).partition("OWNERS\n")[2]
    head, names, row = section.splitlines()[:3]
    assert head == "1 of 2 flows belongs to 1 process; logs name both ranks of 1 flow."
    assert "rank peer rank host" in " ".join(names.split())
    assert "9 11 3 a?[2J 0xabc source" in " ".join(row.split())


def test_perftest_has_no_process():
    logged = Owner(pid=None, command="perftest", rank=None, device="rxe0")
    section = report(flows=[flow(0, 10, owner=logged)]).partition("OWNERS\n")[2]
    assert section.startswith("1 of 1 flow belongs to perftest; logs name both ranks of 0 flows.")


def test_without_owners_there_is_none():
    assert "OWNERS" not in report(flows=[flow(0, 10)])
    assert "RDMA PORTS" not in report(flows=[flow(0, 10)])
