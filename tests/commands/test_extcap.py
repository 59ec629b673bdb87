"""Live RoCE interfaces of tshark, in namespaces: listed, captured, stopped, and nothing is left."""

from __future__ import annotations

import ast
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
from rocescope.commands import extcap_launcher
from rocescope.commands.extcap import extcap
from rocescope.commands.options.capturing import Capturing

# Live RoCE interfaces of tshark, in namespaces: listed, captured, stopped, and nothing is left.

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


# The program in Wireshark's extcap folder: its answers, and what it starts.


def asked(*words):
    """Its answer, as Wireshark runs it: without the packages of this Python."""
    command = [sys.executable, "-IS", extcap_launcher.__file__, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_interfaces_are_those_of_the_system():
    lines = asked("--extcap-interfaces", "--extcap-version=4.0").stdout.splitlines()
    names = [n for n in sorted(os.listdir("/sys/class/net")) if Path("/sys/class/net", n).is_dir()]
    assert lines[1:] == [
        f"interface {{value=roce-{n}}}{{display=RoCE on {n} (rocescope)}}" for n in names
    ]


def test_link_type_options_and_capture_filters():
    of = "--extcap-interface", "roce-lo"
    assert asked(*of, "--extcap-dlts").stdout == "dlt {number=1}{name=EN10MB}{display=Ethernet}\n"
    options = asked(*of, "--extcap-config").stdout
    assert "{call=--filter}" in options and "{value=xdp}" in options
    assert "no capture filter" in asked(*of, "--extcap-capture-filter", "udp").stdout
    assert asked().returncode == 1


def test_a_capture_takes_only_known_options(tmp_path, root):
    says = [sys.executable, "-c", "import sys; print(sys.argv[1:])"]
    source = Path(extcap_launcher.__file__).read_text()
    program = tmp_path / "launcher.py"
    program.write_text(source.replace("RUN: list[str] = []", f"RUN = {says!r}"))
    fifo = tmp_path / "fifo"
    fifo.write_text("")
    words = ["--capture", "--extcap-interface", "roce-eth2", "--fifo", str(fifo), "--write", "/x"]
    words += ["--filter", "cnp", "--sample=2", "--hook", "", "-w", "/etc/y"]
    subprocess.run([sys.executable, "-IS", program, *words], check=True)
    known = ["extcap", "--capture", "eth2", "--filter=cnp", "--sample=2"]
    assert ast.literal_eval(fifo.read_text()) == known


def refused(tmp_path, program, monkeypatch, capsys):
    """What a user without rights and without sudo reads."""
    monkeypatch.setattr(extcap_launcher, "RUN", [str(program)])
    monkeypatch.setattr(extcap_launcher, "_may_capture", lambda: False)
    monkeypatch.setenv("PATH", str(tmp_path))  # no sudo there
    monkeypatch.setenv("USER", "ann")
    words = ["--capture", "--extcap-interface", "roce-eth2", "--fifo", str(tmp_path / "fifo")]
    assert extcap_launcher.main(words) == 1
    return capsys.readouterr().err


def test_sudo_has_to_allow_a_capture_that_writes_no_file(tmp_path, monkeypatch, capsys):
    told = refused(tmp_path, "/bin/true", monkeypatch, capsys)
    program = os.path.realpath("/bin/true")
    assert os.stat(program).st_uid == 0
    assert told.strip().endswith(
        "ann ALL=(root) NOPASSWD: /bin/true extcap --capture * (it captures to standard output and"
        " writes no file)"
    )


def test_sudo_must_not_run_what_others_can_change(tmp_path, monkeypatch, capsys):
    program = tmp_path / "rocescope"
    program.write_text("")
    program.chmod(0o777)
    told = refused(tmp_path, program, monkeypatch, capsys)
    assert "NOPASSWD" not in told and "install rocescope as root" in told and str(tmp_path) in told
    assert "NOPASSWD" not in refused(tmp_path, tmp_path / "gone", monkeypatch, capsys)


def test_sudo_must_not_run_what_a_link_of_others_leads_to(tmp_path, monkeypatch, capsys):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for at, target in (("program", "/bin/true"), ("folder", "/bin"), ("self", "self")):
        (shared / at).symlink_to(target)
    for path in (shared / "program", shared / "folder/true", shared / "self", "true", "/bin/../x"):
        assert "NOPASSWD" not in refused(tmp_path, path, monkeypatch, capsys)
    told = refused(tmp_path, "/bin/../bin/./true", monkeypatch, capsys)
    assert "NOPASSWD: /bin/../bin/./true extcap" in told
    monkeypatch.setattr(extcap_launcher, "CODE", ["/bin/true", str(shared)])
    told = refused(tmp_path, "/bin/true", monkeypatch, capsys)
    assert "NOPASSWD" not in told and "install rocescope as root" in told


def test_interfaces_that_are_no_names(capsys):
    for name in ("roce-", "roce-../x", ""):
        assert extcap_launcher.main(["--capture", "--extcap-interface", name]) == 1
    assert capsys.readouterr().err.count("no interface is given") == 3


def test_it_imports_nothing_heavy():
    code = "import sys, runpy; sys.argv = ['x', '--extcap-dlts']\n"
    code += f"try: runpy.run_path({extcap_launcher.__file__!r}, run_name='__main__')\n"
    code += "except SystemExit: print('numpy' in sys.modules or 'subprocess' in sys.modules)"
    done = subprocess.run([sys.executable, "-IS", "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False"
