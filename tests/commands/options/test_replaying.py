"""The traffic of a fabric as arguments becomes the request of a replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.commands.options.replaying import MAPPED, OFFERED, Mapped, Offered
from rocescope.replay.compare.request import ReplayRequest

FABRIC = "leaf-spine:leaves=2,spines=2,hosts=2"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.chdir(tmp_path)
    paths = [Path("1.pcap"), Path("2.pcap")]
    for path in paths:
        path.touch()
    return paths


def test_without_an_option_the_request_has_its_own_defaults(files: list[Path]) -> None:
    expected = ReplayRequest(FABRIC, captures=("1.pcap", "2.pcap"))
    assert OFFERED.request(FABRIC, files) == expected
    assert (MAPPED.map, MAPPED.filter, MAPPED.concat) == ("exact", None, False)


def test_every_option_is_in_the_request(files: list[Path]) -> None:
    offered = Offered(tap=["up1=2.pcap"], map="order", filter="qp == 17", pattern="permutation")
    asked = offered.request(FABRIC, files, seed=7, strategies=("ecmp",))
    assert asked == ReplayRequest(
        FABRIC,
        ("ecmp",),
        ("1.pcap", "2.pcap"),
        "permutation",
        tap_names={"2.pcap": "up1"},
        map="order",
        filter="qp == 17",
        seed=7,
    )
    assert Offered(concat=True).request(FABRIC, files).concat
    assert isinstance(offered, Mapped)


def test_a_pattern_needs_no_capture() -> None:
    asked = Offered(pattern="incast:qps=4").request(FABRIC, ())
    assert (asked.captures, asked.pattern) == ((), "incast:qps=4")


def test_files_of_one_tap_have_no_names_of_their_own(files: list[Path]) -> None:
    with pytest.raises(UsageError, match="--tap cannot be combined with --concat"):
        Offered(tap=["up1=1.pcap"], concat=True).request(FABRIC, files)
