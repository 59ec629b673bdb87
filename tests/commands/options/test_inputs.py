"""Files, folders and patterns as arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocescope.analyzer.errors import UnreadableInput, UsageError
from rocescope.commands.options.inputs import captures_in, check_inputs, expanded


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Captures at two levels, and other files."""
    names = [
        "a/r.pcap",
        "a/r.pcap12",
        "b/x.pcapng.zst",
        "b/x.json",
        "c.cap",
        "notes.txt",
        "d.pcap2x",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_the_captures_of_a_folder(folder: Path) -> None:
    below = [folder / name for name in ("a/r.pcap", "a/r.pcap12", "b/x.pcapng.zst", "c.cap")]
    assert captures_in(folder) == expanded([folder]) == below
    assert captures_in(folder, "*") == below[-1:]
    (folder / "empty").mkdir()
    with pytest.raises(UnreadableInput, match="empty contains no capture"):
        captures_in(folder / "empty")


def test_a_file_given_twice(folder: Path) -> None:
    one, link = folder / "c.cap", folder / "latest.cap"
    link.symlink_to(one)
    gone = folder / "gone.pcap"
    check_inputs([one, folder / "a/r.pcap", gone])
    for files, said in (
        ([one, one], f"{one} is given twice"),
        ([gone, one, gone], f"{gone} is given twice"),
        ([one, link], f"{one} and {link} are one file, which is given twice"),
        ([one, folder / "a" / ".." / "c.cap"], "are one file, which is given twice"),
    ):
        with pytest.raises(UsageError) as error:
            check_inputs(files)
        assert said in str(error.value)


def test_odd_names_are_captures_and_other_files_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("A.PCAP", "b\nc.pcap", "notes.txt", "x.json"):
        (tmp_path / name).touch()
    assert captures_in(tmp_path) == [tmp_path / "A.PCAP", tmp_path / "b\nc.pcap"]
    assert capsys.readouterr().err.endswith(": 2 files are not named like a capture: ignored\n")

    def denied(folder: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", folder)

    monkeypatch.setattr("os.listdir", denied)
    with pytest.raises(UnreadableInput, match=": Permission denied$"):
        captures_in(tmp_path)


def test_patterns_name_files(folder: Path) -> None:
    found = [folder / "a/r.pcap", folder / "a/r.pcap12"]
    assert expanded([folder / "?/r.pcap*"]) == expanded([folder / "a*"]) == found
    gone, literal = folder / "x[1].pcap", folder / "y[1].pcap"
    literal.touch()
    assert expanded([gone, literal, Path("-")]) == [gone, literal, Path("-")]
