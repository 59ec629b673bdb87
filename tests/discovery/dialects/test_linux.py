"""The commands of linux."""

from __future__ import annotations

import subprocess
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

import pytest
from answers import recorded
from switch_lab import BY_NAME, LAB, Switch, check_fabric, read

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.asking import Query
from rocescope.discovery.dialects.linux import CUMULUS, LINUX, installed_of

# The commands of linux.


@pytest.mark.parametrize("question", [q for q in LINUX.questions if q.command.startswith("ip ")])
def test_ip_knows_the_commands(question, need_tool):
    need_tool("ip")
    done = subprocess.run(question.command.split(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# FRR's view of the routes.


def test_frr_calls_members_installed_that_the_kernel_has_lost(tmp_path):
    folder = recorded(tmp_path) / "flapped"
    found = installed_of(folder / "leaf1.frr-route.json")
    assert found[ip_network("10.2.3.0/24")] == {"swp1", "swp2", "swp3", "swp4"}
    assert "swp3" not in (folder / "leaf1.route.json").read_text()


def test_no_file_no_routes(tmp_path):
    assert installed_of(tmp_path / "none") == {}
    (tmp_path / "empty").touch()
    assert installed_of(tmp_path / "empty") == {}


@pytest.mark.parametrize("content", [b"[]", b'{"10.0.0.0/99": []}', b'{"10.0.0.0/8": 1}', b"{"])
def test_other_content_is_named(content, tmp_path):
    file = tmp_path / "r.frr-route.json"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"r.frr-route.json: not the output of show ip route"):
        installed_of(file)


# Cumulus Linux: the kernel's answers, and NVUE's in the shapes of NVIDIA's user guide.


def answers(switch: Switch):
    addr, heard = [], []
    route: list[dict[str, Any]] = []
    for port in switch.ports:
        own, name = ip_interface(port.address), f"swp{port.number}"
        addr.append({
            "ifname": name, "flags": ["UP", "LOWER_UP"], "address": switch.mac(port.number),
            "addr_info": [{"local": str(own.ip), "prefixlen": own.network.prefixlen}],
        })  # fmt: skip
        route.append({"dst": str(own.network), "dev": name, "prefsrc": str(own.ip), "flags": []})
        if port.peer:
            heard.append({
                "name": name,
                "chassis": [{"id": [{"type": "mac", "value": BY_NAME[port.peer].chassis}],
                             "name": [{"value": port.peer}]}],
                "port": [{"id": [{"type": "ifname", "value": f"swp{port.peer_port}"}]}],
            })  # fmt: skip
    for network, hops in switch.routes.items():
        via = [{"gateway": h.gateway, "dev": f"swp{h.port}", "weight": 1,
                "flags": ["offload"]} for h in hops]  # fmt: skip
        alone = len(via) == 1
        route.append({"dst": network, **(via[0] if alone else {"nexthops": via, "flags": []})})
    return {
        "route.json": route,
        "route6.json": [],
        "addr.json": addr,
        "lldp.json": {"lldp": [{"interface": heard}]},
        "sysctl": "net.ipv4.ip_forward = 1\nnet.ipv4.fib_multipath_hash_policy = 1\n"
        "net.ipv4.fib_multipath_hash_seed = 7\n",
        "cumulus-forwarding.json": {"ecmp-hash": {"source-ip": "on", "source-port": "off"}},
        "cumulus-traffic": "# comment\nhash_config.enable = true\necmp_hash_seed = 42\n",
        "cumulus-adaptive.json": {"enable": "off"},
    }


def test_the_fabric_and_its_hash_is_that_of_the_chip(tmp_path):
    found = check_fabric(tmp_path, answers)
    assert found.report.devices[0].hash == "seed 42, fields source-ip"
    assert found.fabric.hash_settings[0] is None


@pytest.mark.parametrize(
    ("suffix", "answer", "told"),
    [
        ("cumulus-forwarding.json", {"ecmp-hash": {"source-ip": "maybe"}}, "unknown setting"),
        ("cumulus-forwarding.json", {}, "expected the key 'ecmp-hash'"),
        (
            "cumulus-traffic",
            "ecmp_hash_seed = lots\n",
            "expected a seed up to 4,294,967,295, found 'lots'",
        ),
        ("cumulus-traffic", f"ecmp_hash_seed = {'1' * 11}\n", "expected a seed up to"),
        ("cumulus-adaptive.json", {"enable": None}, "expected a text"),
    ],
)
def test_odd_answers_are_told_and_the_tables_are_read(suffix, answer, told, tmp_path):
    device = read(CUMULUS, tmp_path, LAB[0], {**answers(LAB[0]), suffix: answer})
    (line,) = device.unexpected
    assert told in line
    assert len(device.routes) == 4


def test_adaptive_routing_is_said(tmp_path):
    answer = {**answers(LAB[0]), "cumulus-adaptive.json": {"enable": "on"}}
    device = read(CUMULUS, tmp_path, LAB[0], answer)
    assert any("adaptive routing is on" in remark for remark in device.remarks)


def test_the_calculator():
    query = Query(ip_address("10.1.1.2"), ip_address("10.1.2.2"), 49152, 4791, "swp3")
    assert CUMULUS.calculator.command(query) == (
        "sudo -n cl-ecmpcalc -i swp3 -s 10.1.1.2 -d 10.1.2.2 -p udp --sport 49152 --dport 4791"
    )
    assert CUMULUS.calculator.port(b"ecmpcalc: will query hardware\nswp1\n") == "swp1"
    assert CUMULUS.calculator.port(b"ecmpcalc: will query hardware\n") is None
    assert CUMULUS.calculator.port(b"ecmpcalc: error: no route\n") is None
