"""What the screens show, as files and on the clipboard."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tui_driver
from captures import data
from examples import first
from tui_driver import drive, text_of, typed

from rocescope.analyzer.errors import RocescopeError
from rocescope.tui.app import RocescopeApp
from rocescope.tui.exports import save
from rocescope.tui.session.packets import PacketExport, Wanted
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import FlowKey

I03 = [data("i03_write_reorder5_AtoB")]


@pytest.fixture(autouse=True)
def lasting_toasts(monkeypatch):
    monkeypatch.setattr(RocescopeApp, "NOTIFICATION_TIMEOUT", 600)


def screen(app):
    return "\n".join(text_of(app))


def toasts(app):
    return [note.message for note in app._notifications]


@pytest.mark.parametrize("suffix", first(3, [".json", ".parquet", ".html", ".csv", ".pcapng"]))
def test_export(tmp_path, monkeypatch, suffix):
    monkeypatch.chdir(tmp_path)
    keys = ["7", "e", typed(f"out{suffix}"), "enter"]
    (title,) = drive(I03, keys, look=lambda app: [note.title for note in app._notifications])
    assert title == "saved"
    out = (tmp_path / f"out{suffix}").read_bytes()
    begins = {".parquet": b"PAR1", ".html": b"<!DOCTYPE html>", ".pcapng": b"\x0a\x0d\x0d\x0a"}
    assert out.startswith(begins.get(suffix, b""))
    if suffix == ".json":
        assert len(json.loads(out)["flows"]) == 8


@pytest.mark.thorough
def test_packets_are_exported_from_any_screen(tmp_path, monkeypatch):
    """With what was said about the flow; those of the flow under the cursor."""
    monkeypatch.chdir(tmp_path)
    drive(I03, ["semicolon", typed("slow one"), "enter", "8", "e", typed("a.pcapng"), "enter"])
    content = (tmp_path / "a.pcapng").read_bytes()
    assert b"marked: slow one" in content and re.search(rb"gap: \d+ missing", content)


@pytest.mark.thorough
def test_a_file_that_is_there_is_replaced_only_when_asked_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    there = tmp_path / "a.json"
    there.write_text("mine")
    to_there = ["e", typed("a.json"), "enter"]
    assert "enter replaces it" in drive(I03, to_there, look=screen) and there.read_text() == "mine"
    drive(I03, [*to_there, "escape"])
    assert there.read_text() == "mine"
    drive(I03, [*to_there, typed("b.json"), "enter"])
    assert there.read_text() == "mine" and json.loads((tmp_path / "b.json").read_text())
    drive(I03, [*to_there, "enter"])
    assert json.loads(there.read_text())


@pytest.mark.thorough
def test_exports_that_cannot_be_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copy = tmp_path / "own.pcapng"
    copy.write_bytes(I03[0].read_bytes())
    before = copy.read_bytes()
    (said,) = drive([copy], ["e", typed("own.pcapng"), "enter"], look=toasts)
    assert "choose another name" in said and copy.read_bytes() == before
    (said,) = drive(I03, ["e", typed("no/x.html"), "enter"], look=toasts)
    assert "there is no folder no" in said
    (said,) = drive(I03, ["e", typed("/dev/full/x.json"), "enter"], look=toasts)
    assert "there is no folder" in said
    assert [path.name for path in tmp_path.iterdir()] == ["own.pcapng"]


ON_A_FULL_DISK = """
import sys
from pathlib import Path
from tui_driver import drive, typed
from rocescope.tui.app import RocescopeApp

RocescopeApp.NOTIFICATION_TIMEOUT = 600
capture, out = map(Path, sys.argv[1:])
out.write_text("before")
toasts = lambda app: [note.message for note in app._notifications]
(said,) = drive([capture], ["e", typed(str(out)), "enter", "enter"], look=toasts)
assert "no space left" in said and out.read_text() == "before", said
assert [path.name for path in out.parent.iterdir()] == [out.name]
"""


@pytest.mark.thorough
@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("suffix", first(1, [".json", ".html", ".pcapng"]))
def test_a_full_disk_is_said_and_keeps_what_was_there(tmp_path, suffix, need_tool, unavailable):
    """The disk is in a mount namespace, which ends with its process however that ends."""
    need_tool("mount")
    command = [need_tool("unshare"), "--mount", "sh", "-c"]
    command += ['mount -t tmpfs -o size=32k tmpfs "$0" && exec "$@"', tmp_path]
    command += [sys.executable, "-c", ON_A_FULL_DISK, I03[0], tmp_path / f"a{suffix}"]
    support = str(Path(tui_driver.__file__).parent)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([support, *sys.path])}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.stderr.startswith(("unshare:", "mount:")):
        unavailable(done.stderr)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())


def test_copying():
    copied = drive(I03, ["y"], look=lambda a: a.clipboard)
    assert re.search("infiniband.bth.destqp == 0x00002[a-d]", copied)
    assert drive(I03, ["Y"], look=lambda a: a.clipboard).startswith("rocescope analyze ")


def test_an_export_that_is_stopped_leaves_nothing(tmp_path):
    session = Session.open([str(I03[0])])
    export = PacketExport(session, [FlowKey("10.0.0.1", "10.0.0.2", 0x2D)], Wanted())
    export.stop()
    with pytest.raises(RocescopeError, match="nothing saved"):
        save(tmp_path / "x.pcapng", export.write)
    assert not list(tmp_path.iterdir())


def test_an_export_has_no_part_in_the_end_of_the_session(tmp_path, monkeypatch):
    """Else X, which then waited for all packets, could not stop reading."""
    monkeypatch.chdir(tmp_path)
    to_file = ["e", typed("a.pcapng"), "enter"]
    look = lambda app: (app.view.session._at_close, app.exports.under_way)  # noqa: E731
    assert drive(I03, to_file, look=look) == ([], [])
    assert (tmp_path / "a.pcapng").stat().st_size > 100_000
