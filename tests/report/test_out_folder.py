"""The results of an analysis as a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from captures import data

from rocescope.analyzer.analysis.analyze import analyze
from rocescope.analyzer.analysis.options import AnalyzeOptions
from rocescope.analyzer.errors import RocescopeError
from rocescope.analyzer.results.analysis import Analysis
from rocescope.report.files import encode_json
from rocescope.report.out_folder import write_folder


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    paths = [str(data(f"i01_write_loss0.5_AtoB.{at}")) for at in ("atA", "atB")]
    return analyze(paths, AnalyzeOptions())


def test_all_files(tmp_path: Path, analysis: Analysis) -> None:
    write_folder(analysis, tmp_path / "out")
    write_folder(analysis, tmp_path / "out")  # again, in place
    files = {str(p.relative_to(tmp_path / "out")) for p in tmp_path.rglob("*") if p.is_file()}
    assert files == {
        "flows/0.parquet", "hops.parquet", "findings.json", "summary.json", "report.html",
    }  # fmt: skip
    assert (tmp_path / "out" / "summary.json").read_bytes() == encode_json(analysis)
    assert pq.read_table(tmp_path / "out" / "flows").num_rows == len(analysis.flows) > 0
    hops = pq.read_table(tmp_path / "out" / "hops.parquet").to_pylist()
    assert [hop["lost_packets"] for hop in hops] == [hop.lost_packets for hop in analysis.hops]
    assert json.loads((tmp_path / "out" / "findings.json").read_bytes())["findings"]
    assert (tmp_path / "out" / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_a_file_in_place_of_the_folder_is_told(tmp_path: Path, analysis: Analysis) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(RocescopeError, match="cannot write .*out: "):
        write_folder(analysis, tmp_path / "out")
