"""`rocescope live` as root: what its processes hold, and the files that it can still write."""

import os
import shlex
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from network import roce_frames
from processes import children_of
from real_terminal import terminals
from waiting import until

from .test_analyze_live import FILES, MAIN, OWNERS, documented, held_by

pytestmark = pytest.mark.usefixtures("root", "libibverbs")


@pytest.fixture
def live(network, need_tool, tmp_path):
    """`live(*options)`: started in a folder of root; its network, its terminal and its process."""
    need_tool("tmux")
    tshark, folder = need_tool("tshark"), tmp_path / "folder"
    folder.mkdir()
    logging = tmp_path / "bin/tshark"
    logging.parent.mkdir()
    logging.write_text(f'#!/bin/sh\nid -u > {tmp_path}/out.uid\nexec {tshark} "$@"\n')
    logging.chmod(0o755)
    (tmp_path / "out.uid").touch()
    (tmp_path / "out.uid").chmod(0o666)
    with terminals(tmp_path) as terminal:

        def start(*options):
            net = network()
            words = [sys.executable, "-m", "rocescope", "live", net.interface("right"), *options]
            line = f"cd {folder}; export PATH={logging.parent}:$PATH; echo $$ > {tmp_path}/pid;"
            window = terminal(["sh", "-c", f"{line} exec {shlex.join(words)}"], 100, 30)
            window.wait("Waiting for the first RoCE packet")
            return net, window, int((tmp_path / "pid").read_text())

        yield start


@pytest.mark.parametrize("options", [(), ("--record", "seen.pcapng")], ids=["", "record"])
def test_every_thread_of_every_process_holds_what_the_page_says(live, options):
    net, window, pid = live(*options)
    table = documented()
    until(lambda: held_by(pid) == {table[MAIN]})
    expected = Counter(frozenset({table[row]}) for row in (OWNERS, FILES))
    until(lambda: Counter(frozenset(held_by(child)) for child in children_of(pid)) == expected)
    net.send(roce_frames(30))
    window.keys("2")
    window.wait("no packet late or lost")
    assert held_by(pid) == {table[MAIN]}  # of threads that started since, too
    window.keys("q")
    assert "exit code 0" in window.wait("exit code")


def export(window, name):
    window.keys("e")
    window.wait("save as")
    window.wait("-view.pcapng")
    window.keys("C-u")
    until(lambda: "-view.pcapng" not in window.screen())
    time.sleep(0.3)  # keys of one burst are for nobody while the prompt changes
    window.keys(name)
    window.wait(f" {name}")
    window.keys("Enter")
    until(lambda: "save as" not in window.screen())


def test_exports_come_into_the_folder_of_root(live, tmp_path):
    net, window, _ = live("--record", "seen.pcapng")
    folder = tmp_path / "folder"
    mine = folder / "mine.json"
    mine.write_text("mine")
    net.send(roce_frames(30))
    window.keys("2")
    window.wait("no packet late or lost")
    for name in ("a.json", "b.html", "c.pcapng"):
        export(window, name)
        until((folder / name).exists)
        assert (folder / name).stat().st_uid == 0 and (folder / name).stat().st_size > 100
    export(window, "../d.json")
    window.wait("permission")
    assert not (tmp_path / "d.json").exists()
    export(window, "mine.json")
    window.wait("enter replaces it")
    window.keys("Enter")
    window.wait("another")
    assert mine.read_text() == "mine"
    made = ["a.json", "b.html", "c.pcapng", "seen.pcapng"]
    assert sorted(os.listdir(folder)) == sorted([*made, "mine.json"])
    window.keys("q")
    assert "exit code 0" in window.wait("exit code")


def test_tshark_never_runs_as_root(live, tmp_path):
    """The folders above must be passable for it, as those of an installed tshark are."""
    net, window, _ = live("--record", "seen.pcapng")
    for path in (tmp_path, *tmp_path.parents):
        path.chmod(path.stat().st_mode | 0o011) if path != Path("/") else None
    net.send(roce_frames(30))
    window.keys("2")
    window.wait("no packet late or lost")
    window.keys("Enter")
    window.wait("Solicited Event")
    assert int((tmp_path / "out.uid").read_text()) != 0
    window.keys("q")
