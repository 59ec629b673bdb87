"""Live RoCE interfaces of tshark, in namespaces: listed, captured, stopped, and nothing is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from network import Network, roce_frames
from waiting import until

import rocescope
from rocescope.analyzer.errors import UsageError
from rocescope.commands.extcap import extcap
from rocescope.commands.options.capturing import Capturing

PACKAGES = os.environ.get("PYTHONPATH", "")
CAPABILITIES = "+net_admin,+bpf,+perfmon,+dac_read_search"


@pytest.mark.thorough
def test_install_list_uninstall(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    folder = tmp_path / "extcap"
    launcher = folder / "rocescope-extcap"
    extcap(list_=True, folder=folder)
    assert capsys.readouterr().out.count("not installed") == 3
    extcap(install=True, folder=folder)
    assert launcher.stat().st_mode & 0o777 == 0o755
    assert launcher.read_text().startswith(f"#!{sys.executable} -IS\n")
    package = str(Path(rocescope.__file__).parent)
    assert f"\nCODE = {[sys.executable, package]!r}\n" in launcher.read_text()
    places = [line.rpartition(": ") for line in capsys.readouterr().out.splitlines()]
    assert [state for _, _, state in places] == ["installed"] * 3
    done = subprocess.run([launcher, "--extcap-interfaces"], capture_output=True, text=True)
    assert "roce-lo" in done.stdout
    extcap(uninstall=True, folder=folder)
    assert not any(Path(place).exists() for place, _, _ in places)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"capture": "eth2", "install": True}, "give one of"),
        ({"capture": "eth2", "folder": Path("/etc")}, "--folder cannot be combined"),
        ({"list_": True, "sample": 2}, "--sample needs --capture"),
        ({"install": True, "capturing": Capturing(snaplen=20)}, "--snaplen needs --capture"),
    ],
)
def test_a_capture_installs_nothing(words, why):
    """sudo may allow `extcap --capture *`: no other option may write a file."""
    with pytest.raises(UsageError, match=why):
        extcap(**words)


@pytest.fixture
def as_user(root, need_tool, monkeypatch):
    """A command line as a user with the capabilities of a capture, and its extcap folder."""
    need_tool("tshark")
    need_tool("setpriv")
    folder = Path("/tmp") / f"rocescope-extcap-{os.getpid()}"
    home = folder / "home"
    home.mkdir(parents=True)
    shutil.chown(home, "nobody")
    run = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]
    run += ["--inh-caps", CAPABILITIES, "--ambient-caps", CAPABILITIES]
    run += ["env", f"HOME={home}", f"WIRESHARK_EXTCAP_DIR={folder}", f"PYTHONPATH={PACKAGES}"]
    monkeypatch.setenv("HOME", str(home))
    extcap(install=True, folder=folder)
    yield run, folder / "rocescope-extcap"
    extcap(uninstall=True, folder=folder)
    shutil.rmtree(folder)


def nothing_is_attached(network):
    """Whether no program of a capture is left on the interface."""
    shown = network.run("bpftool", "-j", "net", "show") if shutil.which("bpftool") else ""
    return "rocescope" not in shown


def gone(process_words):
    """Whether no process has these words; some time is needed to end."""
    until(lambda: subprocess.run(["pgrep", "-f", process_words], capture_output=True).stdout == b"")
    return True


@pytest.mark.thorough
def test_tshark_lists_captures_and_stops(as_user):
    run, launcher = as_user
    with Network(f"excap{os.getpid() % 10_000}") as network:
        listed = network.run(*run, "tshark", "-D")
        assert "roce-right (RoCE on right (rocescope))" in listed
        tshark = network.start(*run, "tshark", "-n", "-i", "roce-right", "-c", "5")

        def ended():
            network.send(roce_frames(1))
            return tshark.poll() is not None

        until(ended)
        assert tshark.returncode == 0
        assert gone("extcap --capture right") and nothing_is_attached(network)

        stopped = network.start(*run, "tshark", "-n", "-i", "roce-right", "-w", "-")
        time.sleep(4)
        stopped.send_signal(signal.SIGINT)
        stopped.wait(300)
        assert gone("extcap --capture right") and nothing_is_attached(network)

        fifo = launcher.with_name("fifo")
        os.mkfifo(fifo)
        fifo.chmod(0o666)
        words = ("--capture", "--extcap-interface", "roce-right", "--fifo", str(fifo))
        capture = network.start(*run, str(launcher), *words)
        reader = os.open(fifo, os.O_RDONLY)
        assert os.read(reader, 4) == b"\n\r\r\n"
        os.close(reader)  # without any packet
        capture.wait(300)
        assert gone("extcap --capture right") and nothing_is_attached(network)
