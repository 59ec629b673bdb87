"""The conformance report: verdict first, nothing wider than the terminal, plain where asked."""

from __future__ import annotations

import io

import pytest
from captures import DATA

from rocescope.analyzer.measures.conformance.options import ConformanceOptions, HostCounters
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.report.terminal.conformance import CheckReport
from rocescope.report.terminal.page import page_on
from rocescope.report.terminal.report import Report


@pytest.fixture(scope="module")
def analysis():
    saved = HostCounters("10.0.0.2", {"rcvd_pkts": 31_510, "out_of_seq_request": 126})
    paths = [str(DATA / f"i01_write_loss0.5_AtoB.at{host}.pcap.gz") for host in "AB"]
    options = AnalyzeOptions(conformance=ConformanceOptions(counters=saved))
    return analyze(paths, options)


@pytest.mark.parametrize("columns", ["80", "140"])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_fits_and_says_what_matters(monkeypatch, analysis, columns, encoding) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    stream = io.TextIOWrapper(io.BytesIO(), encoding, newline="\n")
    CheckReport(analysis, page_on(stream, "never")).print()
    stream.seek(0)
    text = stream.read()
    assert max(map(len, text.splitlines())) <= int(columns)
    assert "No rule is violated: 9 rules passed" in text
    assert "before a loss" in text and "after a loss" in text
    assert "2 of 2 counters agree" in text  # with the tap on the link of the host
    assert "\x1b" not in text


def test_section_of_the_whole_report(monkeypatch, analysis) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stream = io.StringIO()
    Report(analysis, page_on(stream, "never")).print()
    text = stream.getvalue()
    assert text.index("LOSS AND RECOVERY") < text.index("CONFORMANCE")
