"""`rocescope capture --counters` as users run it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from counted import Counted, packet, traffic

from rocescope import cli
from rocescope.report.files import encode


def run(net: Any, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rocescope", "capture", "--counters", net.interface("left")]
    process = subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert "counting on" in process.stderr.readline()
    return process


@pytest.mark.thorough
def test_interface_goes_away(network):
    net = network()
    process = run(net)
    net.send([packet(1)])
    net.ip("link", "del", "left")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0
    assert (
        "all interfaces have disappeared or lost their probes" in err and "1 packets counted" in err
    )


@pytest.mark.thorough
def test_command_writes_json(network, tmp_path):
    net = network()
    process = run(net, "--format", "json", "--interval", "200ms")
    net.send(traffic())
    results = [json.loads(process.stdout.readline()) for _ in range(2)]
    process.send_signal(2)
    out, err = process.stdout.read(), process.stderr.read()
    assert process.wait() == 0
    results += [json.loads(line) for line in out.splitlines()]
    assert len(results) >= 3
    assert sum(flow["packets"] for flow in results[-1]["flows"]) == len(traffic())
    assert re.search(rf"{len(traffic())} packets counted, 0 of them missing", err)
    file = tmp_path / "counters.json"
    process = run(net, "-w", str(file), "--duration", "300ms")
    net.send([packet(1)])
    assert process.communicate(timeout=300)[0] == ""
    assert json.loads(file.read_text())["flows"][0]["packets"] == 1


@pytest.mark.thorough
def test_command_prints_a_report(network):
    net = network()
    process = run(net, "--duration", "300ms")
    net.send(traffic())
    out, _ = process.communicate(timeout=300)
    assert "6 flows" in out or "3 flows carry data" in out
    assert "0x000013" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--counters", "--ring", "1MiB"], "cannot be combined with --ring"),
        (["--counters", "--count", "5"], "cannot be combined with --count"),
        (["--counters", "--sample", "5"], "cannot be combined with --sample"),
        (["--counters", "-w", "x.json", "--format", "table"], "writes JSON to files"),
        (["--interval", "1s"], "--interval needs --counters"),
        (["--max-flows", "100"], "--max-flows needs --counters"),
    ],
)
def test_options_that_make_no_sense(capsys, arguments, message):
    assert cli.run(["capture", "lo", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1


@pytest.mark.thorough
def test_every_format_takes_it(network):
    net = network()
    with Counted(net) as counted:
        net.send(traffic())
    for name in ("json", "csv", "parquet", "arrow"):
        assert encode(counted.analysis, name)
