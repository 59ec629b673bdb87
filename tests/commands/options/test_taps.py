"""Files, folders and patterns as arguments."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocescope.analyzer.errors import UnreadableInput, UsageError
from rocescope.commands.options.reading import Reading
from rocescope.commands.options.taps import (
    NAMING,
    Naming,
    captures_in,
    check_inputs,
    check_uncombined,
    expanded,
)

# Files, folders and patterns as arguments.


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


# Captures and the names of their taps, as arguments.


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """a/1.pcap, a/2.pcap and b/1.pcap in the working folder."""
    monkeypatch.chdir(tmp_path)
    paths = [Path("a/1.pcap"), Path("a/2.pcap"), Path("b/1.pcap")]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return paths


def test_names_by_path_or_file_name(files: list[Path]) -> None:
    naming = Naming(["leaf1-spine1=b/1.pcap", "leaf1-spine2=2.pcap"])
    paths, names = naming.captures(files)
    assert paths == ["a/1.pcap", "a/2.pcap", "b/1.pcap"]
    assert names == {"b/1.pcap": "leaf1-spine1", "a/2.pcap": "leaf1-spine2"}


def test_a_file_that_only_the_option_gives_is_also_a_capture(files: list[Path]) -> None:
    paths, names = Naming(["up1=./a/1.pcap", "up2=b/1.pcap"]).captures(files[:1])
    assert paths == ["a/1.pcap", "b/1.pcap"]
    assert names == {"a/1.pcap": "up1", "b/1.pcap": "up2"}
    assert Naming(["up1=a/1.pcap"]).captures(()) == (["a/1.pcap"], {"a/1.pcap": "up1"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["a/1.pcap"], "--tap a/1.pcap is not NAME=FILE, such as leaf1-spine3=up3.pcap, nor"),
        (["=a/1.pcap"], "--tap =a/1.pcap is not NAME=FILE"),
        (["up1="], "--tap up1= is not NAME=FILE"),
        (["up1=a/3.pcap"], "--tap up1=a/3.pcap: there is no file a/3.pcap"),
        (["up1=1.pcap"], "--tap: 1.pcap is a/1.pcap or b/1.pcap: give it with its folder"),
        (["up1=a/1.pcap", "up1=b/1.pcap"], "a/1.pcap and b/1.pcap have the same name up1"),
        (["up1=a/1.pcap", "up2=a/1.pcap"], "--tap up2=a/1.pcap: the tap of this file is already"),
        (["2.pcap=a/1.pcap"], "a/2.pcap and a/1.pcap have the same name 2.pcap"),
    ],
)
def test_mistakes(files: list[Path], options: list[str], message: str) -> None:
    with pytest.raises(UsageError) as told:
        Naming(options).captures(files)
    assert message in str(told.value)


def test_no_capture(files: list[Path]) -> None:
    with pytest.raises(UsageError, match="no capture is given"):
        NAMING.captures(())
    assert NAMING.captures((), none_needed=True) == ([], {})


def test_names_on_both_sides_of_a_comparison(files: list[Path]) -> None:
    sides = [files[:2], files[2:]]
    assert Naming(["up1=1.pcap", "up2=a/2.pcap"]).of_each(sides) == [
        {"a/1.pcap": "up1", "a/2.pcap": "up2"},
        {"b/1.pcap": "up1"},
    ]
    assert Naming(["up1=a/1.pcap", "up1=b/1.pcap"]).of_each(sides) == [
        {"a/1.pcap": "up1"},
        {"b/1.pcap": "up1"},
    ]
    for options, message in (
        (["up1=3.pcap"], "no capture that is compared has this name"),
        (["up1=1.pcap", "up1=a/2.pcap"], "have the same name up1"),
        (["up1=1.pcap", "up2=b/1.pcap"], "the tap of this file is already up1"),
    ):
        with pytest.raises(UsageError, match=message):
            Naming(options).of_each(sides)


def test_not_with_concat() -> None:
    check_uncombined({}, concat=True)
    check_uncombined({"a.pcap": "up1"}, concat=False)
    with pytest.raises(UsageError, match="--tap cannot be combined with --concat"):
        check_uncombined({"a.pcap": "up1"}, concat=True)


def test_an_expression_names_the_taps_of_ring_files(files: list[Path]) -> None:
    expression = "(?P<tap>[^/]+)/[0-9]"
    reading = Reading(tap=[expression])
    paths, names = reading.captures([Path()])
    assert paths == ["a/1.pcap", "a/2.pcap", "b/1.pcap"]
    assert names == {"a/1.pcap": "a", "a/2.pcap": "a", "b/1.pcap": "b"}
    assert reading.options(paths, names).rings == expression
    assert Reading(tap=["up1=a/1.pcap"]).rings is None


def test_folders_whose_names_are_not_text_are_different_taps(files: list[Path]) -> None:
    paths = [Path(os.fsdecode(name)) for name in (b"\xff/1.pcap", b"\xfe/1.pcap")]
    _, names = Reading(tap=["(?P<tap>[^/]+)/"]).captures(paths)
    assert list(names.values()) == [r"\xff", r"\xfe"]
    _, names = Naming([os.fsdecode(b"\xff=2.pcap")]).captures(files)
    assert names == {"a/2.pcap": r"\xff"}


@pytest.mark.parametrize(
    ("reading", "message"),
    [
        (Reading(tap=["(?P<tap>["]), "is not a regular expression: unterminated character set"),
        (Reading(tap=["(?P<tap>a{9999999999999999999})"]), "is not a regular expression: the r"),
        (Reading(tap=[f"(?P<tap>{'(' * 9999}a{')' * 9999})"]), "is not a regular expression: max"),
        (
            Reading(tap=["a/(?P<tap>.)"]),
            r"names no tap of b/1.pcap: change the expression, or omit",
        ),
        (Reading(tap=["(?P<tap>x*)"]), "names no tap of a/1.pcap"),
        (Reading(tap=["(?P<tap>.)/", "up=b/1.pcap"]), "names all taps: give no other --tap"),
        (Naming(["(?P<tap>.)/"]), "is for analyze, tui and cluster plan"),
    ],
)
def test_mistakes_of_expressions(files: list[Path], reading: Naming, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        reading.captures(files)


def test_expressions_elsewhere(files: list[Path]) -> None:
    with pytest.raises(UsageError, match="no capture is given"):
        Reading(tap=["(?P<tap>.)/"]).captures(())
    with pytest.raises(UsageError, match="compare takes --tap NAME=FILE"):
        Naming(["(?P<tap>.)/"]).of_each([files])
    with pytest.raises(UsageError, match="--follow reads one file"):
        Reading(tap=["(?P<tap>.)/"], follow=True).options(files[:1], {})
