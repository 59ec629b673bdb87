"""Processes that make files in the folder of a test, one for each use."""

import pytest

from rocescope.probes.file_maker import FileMaker
from rocescope.probes.file_maker_process import Use

CSV = r".+\.csv"


@pytest.fixture
def maker(tmp_path):
    with FileMaker(tmp_path, CSV, Use.SERIES) as maker:
        yield maker


@pytest.fixture
def named(tmp_path):
    with FileMaker(tmp_path, CSV, Use.NAMED) as maker:
        yield maker


@pytest.fixture
def later(tmp_path):
    with FileMaker(tmp_path, CSV, Use.NEW) as maker:
        yield maker
