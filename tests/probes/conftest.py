"""Fixtures of probes: makers of files, and the folder of a device."""

from pathlib import Path

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


def write(path: Path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


@pytest.fixture
def tree(tmp_path):
    """Device rxe0 with one port: counters, addresses, and the settings among them."""
    port = tmp_path / "rxe0" / "ports" / "1"
    for name, value in {"port_xmit_data": 1000, "port_rcv_data": 5, "link_downed": 0}.items():
        write(port / "counters" / name, value)
    for name, value in {"sent_pkts": 10, "rcvd_pkts": 20, "lifespan": 10}.items():
        write(port / "hw_counters" / name, value)
    write(port / "gids" / "0", "fe80:0000:0000:0000:5054:00ff:fe12:3456")
    write(port / "gids" / "1", "0000:0000:0000:0000:0000:ffff:0a00:0001")
    write(port / "gids" / "2", "0000:0000:0000:0000:0000:0000:0000:0000")
    return tmp_path
