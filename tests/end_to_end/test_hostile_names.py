"""Names from outside in every output: none steers a terminal, a browser or a spreadsheet."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

import pytest
from examples import first
from factories import Pcapng
from tui_driver import drive, text_of
from waiting import until

from rocescope import cli
from rocescope.tui.exports import analysis_file
from rocescope.tui.session.session import Session

from .test_hostile import TIME_NS, packet

NAMES = {
    "lines": "a\nSECOND\tb\rc",
    "escape": "\x1b]0;x\x07",
    "C1 control": "a\x9b2Jb",
    "delete": "a\x7fb",
    "direction": "\u202egnp\u2066x\u200f",
    "end of markup": "[/]",
    "link": "[link=http://x]y[/link]",
    "formula": "=cmd|'x'!A0",
    "page": "<script>alert(1)</script>",
}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(params=list(NAMES.values()), ids=list(NAMES))
def named(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """A capture and a fabric: names of the file, its interfaces, an owner, a host, a switch."""
    name: str = request.param
    path = tmp_path / f"{name.replace('/', '|')}.pcapng"
    owner = f"owner: QP 0x000012 at 11.0.0.1: pid 7 {name}, rank 3"
    many = Pcapng().section(comment=owner).interface(name=name).interface(name=f"{name}2")
    for i in range(30):
        many.enhanced(TIME_NS + i * 9_000, packet(i))
        if i % 4:
            many.enhanced(TIME_NS + i * 9_000 + 500, packet(i), interface=1)
    path.write_bytes(many.bytes())
    fabric = tmp_path / "fabric.json"
    assert cli.run(["fabric", "leaf-spine:leaves=2,spines=2,hosts=1", "-o", str(fabric)]) == 0
    text = fabric.read_text()
    for known in ("leaf1", "host1", "spine2"):
        text = text.replace(f'"{known}"', json.dumps(f"{name}{known}"))
    fabric.write_text(text)
    missing = tmp_path / f"{name.replace('/', '|')}-missing.pcap"
    empty = tmp_path / f"{name.replace('/', '|')}.txt"
    empty.touch()
    places = {"CAP": path, "FABRIC": fabric, "MISSING": missing, "EMPTY": empty}
    return {"NAME": name} | {word: str(place) for word, place in places.items()}


COMMANDS = [
    "analyze CAP",
    "analyze CAP --brief",
    "analyze CAP --color always",
    "analyze CAP --format json",
    "analyze CAP --format csv",
    "analyze CAP --fabric FABRIC",
    "analyze MISSING",
    "analyze EMPTY",
    "check CAP",
    "check CAP --format json",
    "check CAP --format csv",
    "compare CAP CAP",
    "compare CAP CAP --format json",
    "fabric FABRIC",
    "fabric FABRIC --format json",
    "fabric FABRIC --paths NAME,NAME",
    "fabric NAME",
    "fabric CAP",
    "replay CAP --fabric FABRIC",
    "replay CAP --fabric FABRIC --format json",
    "replay --pattern all-to-all --fabric FABRIC",
    "sweep CAP --fabric FABRIC --seeds 2",
    "sweep --pattern all-to-all --fabric FABRIC --seeds 2 --format json",
    "trace CAP --fabric FABRIC",
    "trace CAP --fabric FABRIC --format json",
    "discover MISSING",
    "discover NAME",
    "export CAP -o MISSING.NAME",
    "analyze CAP --tap NAME=NAME",
    "analyze CAP --filter NAME",
]


@pytest.mark.thorough
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_them_raw(
    named: dict[str, str], capfd: pytest.CaptureFixture[str], command: str
) -> None:
    capfd.readouterr()
    words = [_filled(word, named) for word in command.split()]
    with suppress(SystemExit):
        cli.run(words)
    out, err = capfd.readouterr()
    for line in COLOUR.sub("", out + err).splitlines():
        assert line.isprintable(), (command, line)
        assert not line.lstrip().startswith("SECOND"), (command, line)
    assert "internal error" not in err
    assert "\x1b]8" not in out
    if "csv" in command:
        assert not re.search(r'(^|,)"?[=+@]', out, re.MULTILINE)
    elif "json" in command and out:
        json.loads(out)


def _filled(word: str, named: dict[str, str]) -> str:
    return re.sub("CAP|FABRIC|MISSING|EMPTY|NAME", lambda found: named[found[0]], word)


@pytest.mark.parametrize("key", first(2, ["1", "2", "3", "4", "7", "8", "D"]))
def test_no_screen_shows_them_raw(named: dict[str, str], key: str) -> None:
    for line in drive([Path(named["CAP"])], [key], look=text_of):
        assert line.isprintable(), line


def test_no_page_runs_them(named: dict[str, str]) -> None:
    session = Session.open([named["CAP"]])
    session.start()
    try:
        until(lambda: not session.running)
        page = analysis_file(session, ".html").decode()
    finally:
        session.close()
    assert "<script" not in page
    assert all(line.isprintable() for line in page.splitlines())
