"""A file appears whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocescope.analyzer.errors import RocescopeError
from rocescope.report.whole_file import whole_file


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text("old")
    path.chmod(0o640)
    with whole_file(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["r.json"]


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), RocescopeError("x")])
def test_after_a_failure_the_old_file_is_there_and_nothing_else(
    tmp_path: Path, error: BaseException
) -> None:
    path = tmp_path / "r.json"
    path.write_text("old")
    with pytest.raises(type(error)), whole_file(path) as file:
        file.write(b"half")
        raise error
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["r.json"]


def test_a_link_keeps_pointing_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    link = tmp_path / "link.json"
    link.symlink_to("real.json")
    with whole_file(link) as file:
        file.write(b"new")
    assert link.is_symlink() and (tmp_path / "real.json").read_text() == "new"


def test_new_files_have_ordinary_permissions(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with whole_file(tmp_path / "r.csv") as file:
            file.write(b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "r.csv").stat().st_mode & 0o777 == 0o644


def test_a_device_is_written_directly() -> None:
    with whole_file(Path(os.devnull)) as file:
        file.write(b"x")
    with pytest.raises(RocescopeError, match="cannot write /dev/full: no space left on device"):
        with whole_file(Path("/dev/full")) as file:
            file.write(b"x")


@pytest.mark.usefixtures("root")
def test_links_of_others_in_a_shared_folder_are_not_followed(tmp_path: Path) -> None:
    shared, target = tmp_path / "shared", tmp_path / "target"
    shared.mkdir()
    shared.chmod(0o1777)
    target.write_text("old")
    link = shared / "x"
    link.symlink_to(target)
    os.lchown(link, 65534, 65534)
    with pytest.raises(RocescopeError, match="a link of another user"), whole_file(link) as file:
        file.write(b"new")
    assert target.read_text() == "old"
