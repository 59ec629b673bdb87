"""`rocescope live` as root: what its processes hold, and the files that it can still write."""

import os
import shlex
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from network import bth, ethernet, ipv4, roce_frames, udp
from processes import children_of
from real_terminal import terminals
from waiting import until

from ..probes.owners.test_watch import HERE, THERE, Job
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


COMM = "[b]\x1b[41m\x9bx[/]"
"""A process may call itself anything, of 15 bytes."""
INTERFACE = "[link=x]\x1b[2Jy"
"""Names of interfaces may have anything but white space, slashes and colons."""


def test_names_of_processes_and_interfaces_steer_no_screen(network, need_tool, tmp_path):
    """They are shown as text, controls as `?`; a rank of thousands of digits is none."""
    need_tool("tmux")
    net, job = network(), Job("9" * 5000)
    net.ip("link", "set", "right", "down")
    net.ip("link", "set", "right", "name", INTERFACE, "up")
    net.ip("addr", "add", f"{HERE}/24", "dev", INTERFACE)
    words = [sys.executable, "-m", "rocescope", "live", net.interface(INTERFACE)]
    try:
        job("rename", COMM, {})
        with terminals(tmp_path) as terminal:
            window = terminal(["sh", "-c", f"cd {tmp_path}; exec {shlex.join(words)}"], 130, 36)
            window.wait("Waiting for the first RoCE packet")
            job.connect(0x21, 0x51)
            for psn in range(20):
                packet = ipv4(udp(bth(psn, 0x51) + bytes(68)), HERE, THERE)
                net.send([ethernet(packet)], INTERFACE)
            shown = ""
            window.wait("20 packets")
            for key in ("1", "2", "3", "4", "5", "6", "7", "8", "9", "0", "D"):
                window.keys(key)
                shown += window.wait("[link=x]?[2Jy")
            window.keys("2")
            window.wait(f"[b]?[41m?x[/], pid {job.pid} (source)")
            assert "99999" not in shown and all(map(str.isprintable, shown.splitlines()))
            window.keys("q")
            window.wait("exit code 0")
    finally:
        job.kill()
