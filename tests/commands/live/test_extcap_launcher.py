"""The program in Wireshark's extcap folder: its answers, and what it starts."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

from rocescope.commands.live import extcap_launcher


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
    known = ["capture", "eth2", "-w", "-", "--no-owners", "--quiet", "--filter=cnp", "--sample=2"]
    assert ast.literal_eval(fifo.read_text()) == known


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
