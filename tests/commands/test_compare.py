"""`rocescope compare` on captures and JSON: what it reads, its formats and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from captures import DATA

from rocescope import cli

SENDER = DATA / "i01_write_loss0.5_AtoB.atA.pcap.gz"
RECEIVER = DATA / "i01_write_loss0.5_AtoB.atB.pcap.gz"


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compare") / "before.json"
    assert cli.run(["analyze", str(SENDER), "-o", str(path)]) == 0
    return path


def test_a_capture_equals_its_json(
    analysed: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert cli.run(["compare", str(analysed), str(SENDER), "-f", "json"]) == 0
    result = json.loads(capfdbinary.readouterr().out)
    assert result["change"] == "unchanged"
    assert {flow["change"] for flow in result["flows"]} == {"unchanged"}
    assert result["before"] == str(analysed)


def test_json_of_an_earlier_schema_version(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Version 1.3 does not count the queue pairs of a finding."""
    now, earlier = tmp_path / "now.json", tmp_path / "earlier.json"
    assert cli.run(["analyze", str(RECEIVER), "-o", str(now)]) == 0
    result = json.loads(now.read_text())
    assert result["schema_version"] == "1.6"
    result["schema_version"] = "1.3"
    assert [finding.pop("queue_pairs") for finding in result["diagnosis"]["findings"]] == [4]
    earlier.write_text(json.dumps(result))
    assert cli.run(["compare", str(earlier), str(now), "-f", "json"]) == 0
    changes = json.loads(capfdbinary.readouterr().out)
    assert [finding["change"] for finding in changes["findings"]] == ["unchanged"]
    result["schema_version"] = "1.4"
    del result["diagnosis"]["complete"]
    for capture in result["captures"]:
        for tap in capture["taps"]:
            tap.pop("fragmented_packets", None)
    earlier.write_text(json.dumps(result))
    assert cli.run(["compare", str(earlier), str(now), "-f", "json"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["change"] == "unchanged"


def test_fail_on_worse(analysed: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The receiver lacks the packets that the network lost."""
    words = ["compare", str(analysed), str(RECEIVER)]
    assert cli.run(words) == 0
    assert cli.run([*words, "--fail-on", "worse"]) == 1
    out, err = capfd.readouterr()
    assert "worse (" in out and "lost" in out and err == ""
    assert cli.run(["compare", str(analysed), str(SENDER), "--fail-on", "worse"]) == 0


def test_a_folder_is_the_captures_in_it(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for path in (SENDER, RECEIVER):
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "notes.txt").write_text("not a capture")
    assert cli.run(["compare", str(tmp_path), str(SENDER), "-f", "json"]) == 0
    json.loads(capfdbinary.readouterr().out)


def test_taps_have_the_names_of_the_option(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Both sides have files of the same names; the finding between the taps names them."""
    for side in ("before", "after"):
        (tmp_path / side).mkdir()
        for name, path in (("1.pcap.gz", SENDER), ("2.pcap.gz", RECEIVER)):
            (tmp_path / side / name).symlink_to(path)
    sides = [str(tmp_path / "before"), str(tmp_path / "after")]
    taps = ["--tap", "A-sw=1.pcap.gz", "--tap", f"sw-B={sides[1]}/2.pcap.gz"]
    assert cli.run(["compare", *sides, *taps, "-f", "json"]) == 0
    result = json.loads(capfdbinary.readouterr().out)
    new, gone = (
        {finding[side]["place"]["device"] for finding in result["findings"] if finding[side]}
        for side in ("after", "before")
    )
    assert (new, gone) == ({"sw"}, {None})


def test_one_line_for_every_mistake(
    analysed: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"schema_version": "0.1"}')
    empty = tmp_path / "empty"
    empty.mkdir()
    later = tmp_path / "later.json"
    later.write_text(json.dumps(json.loads(analysed.read_bytes()) | {"schema_version": "99.0"}))
    for words, code, message in (
        ([other, other], 4, "other.json is not the JSON of rocescope analyze, schema version"),
        ([later, later], 4, "later.json has schema version 99.0: analyse the captures with"),
        ([empty, SENDER], 4, "empty contains no capture"),
        ([SENDER, SENDER, "-f", "csv"], 2, "compare prints table, html or json, not csv"),
        ([SENDER, SENDER, "--top", "0"], 2, "--top must be 1 or more"),
    ):
        assert cli.run(["compare", *map(str, words)]) == code
        out, err = capfd.readouterr()
        assert out == "" and message in err and err.count("\n") == 1
