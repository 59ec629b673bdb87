"""VRP: answers in the shapes of Huawei's command references of CloudEngine switches."""

from __future__ import annotations

from ipaddress import ip_address, ip_interface

import pytest
from switch_lab import BY_NAME, LAB, Switch, check_damage, check_fabric, check_huge, read

from rocescope.discovery.asking import Query
from rocescope.discovery.dialects.vrp import VRP

HEAD = """\
Route Flags: G - Gateway Route, H - Host Route,    U - Up Route
             S - Static Route,  D - Dynamic Route, B - Black Hole Route
--------------------------------------------------------------------------------
 FIB Table: _public_
 Total number of Routes: {0}

 Destination/Mask   Nexthop          Flag   Interface               TunnelID
"""


def dashed(mac: str) -> str:
    digits = mac.replace(":", "")
    return "-".join(digits[i : i + 4] for i in (0, 4, 8))


def row(dest: str, to: str, flags: str, port: str, tunnel: str = "-") -> str:
    return f"{dest:>19}  {to:16} {flags:6} {port:23} {tunnel}\n"


def answers(switch: Switch):
    rows = [row("127.0.0.0/8", "127.0.0.1", "U", "InLoopBack0")]
    ports, heard = "", ""
    for port in switch.ports:
        own, name = ip_interface(port.address), f"100GE1/0/{port.number}"
        rows += [
            row(str(own.network), str(own.ip), "U", name),
            row(f"{own.ip}/32", "127.0.0.1", "HU", name),
        ]
        ports += (
            f"{name} current state : UP (ifindex: {port.number})\n"
            "Line protocol current state : UP\n"
            f"Internet Address is {own}\n"
            f"IP Sending Frames' Format is PKTFMT_ETHNT_2, Hardware address is "
            f"{dashed(switch.mac(port.number))}\n"
            "Port Mode: COMMON FIBER\n    Speed:     100000,  Loopback: NONE\n\n"
        )
        if port.peer:
            heard += (
                f"{name} has 1 neighbor(s):\n\nNeighbor index                     :1\n"
                "Chassis type                       :MAC Address\n"
                f"Chassis ID                         :{dashed(BY_NAME[port.peer].chassis)}\n"
                "Port ID subtype                    :Interface Name\n"
                f"Port ID                            :100GE1/0/{port.peer_port}\n"
                f"System name                        :{port.peer}\n"
                "System description                 :Huawei Versatile Routing Platform\n\n"
            )
    for network, hops in switch.routes.items():
        for i, hop in enumerate(hops):
            rows.append(row("" if i else network, hop.gateway, "DGU", f"100GE1/0/{hop.port}"))
    return {
        "vrp-fib.text": HEAD.format(len(rows)) + "".join(rows),
        "vrp-interfaces.text": ports,
        "vrp-lldp.text": heard,
        "vrp-local.text": "System information\n------------------\n"
        f"Chassis type   :MAC Address\nChassis ID     :{dashed(switch.chassis)}\n"
        f"System name    :{switch.name}\n",
    }


def test_the_fabric(tmp_path):
    found = check_fabric(tmp_path, answers)
    assert set(found.fabric.links.rate_bits_per_second.tolist()) == {100_000_000_000}
    assert found.fabric.origin.ipv4_only == (True,) * 4


def test_damage(tmp_path):
    check_damage(VRP, tmp_path, answers)


def test_a_huge_number_of_routes(tmp_path):
    answer = answers(LAB[0])
    answer["vrp-fib.text"] = answer["vrp-fib.text"].replace("Routes: 9", "Routes: 100")
    check_huge(VRP, tmp_path, answer, "vrp-fib.text", "Routes: 100")


def test_a_table_cut_between_two_lines_is_half_an_answer(tmp_path):
    answer = answers(LAB[0])
    answer["vrp-fib.text"] = "".join(answer["vrp-fib.text"].splitlines(True)[:-1])
    device = read(VRP, tmp_path, LAB[0], answer)
    (line,) = device.unexpected
    assert line.endswith("expected all routes, found 8 with a total of 9")
    assert not device.tables_read


def test_neighbours_cut_between_two_lines_are_half_an_answer(tmp_path):
    answer = answers(LAB[0])
    answer["vrp-lldp.text"] = answer["vrp-lldp.text"].partition("Neighbor index")[0]
    device = read(VRP, tmp_path, LAB[0], answer)
    (line,) = device.unexpected
    assert line.endswith("expected 1 more neighbours of 100GE1/0/1")
    assert device.advertised is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Error: Unrecognized command found at '^' position.", "expected prefix, next hop"),
        (row("10.9.0.0/16", "10.0.11.2", "DXU", "100GE1/0/1"), "expected prefix, next hop"),
        (row("10.9.0.1/16", "10.0.11.2", "DGU", "100GE1/0/1"), "expected a network"),
        (" FIB Table: red", "unknown table 'red'"),
    ],
)
def test_an_odd_line_costs_this_line_and_the_rest_is_read(text, told, tmp_path):
    answer = answers(LAB[0])
    answer["vrp-fib.text"] += text.rstrip() + "\n"
    device = read(VRP, tmp_path, LAB[0], answer)
    (line,) = device.unexpected
    assert line.startswith("`display fib`: leaf1.vrp-fib.text:")
    assert told in line
    assert (device.tables_read, len(device.interfaces), len(device.advertised)) == (True, 3, 2)
    hops = {str(r.network): len(r.hops) for r in device.routes}
    assert hops.pop("10.9.0.0/16", 0) == 0
    assert hops == {"10.0.11.0/30": 1, "10.0.12.0/30": 1, "10.1.1.0/24": 1, "10.1.2.0/24": 2}


def test_trunks_tunnels_and_black_holes(tmp_path):
    answer = answers(LAB[0])
    more = [
        row("10.8.0.0/16", "10.0.11.2", "DGU", "100GE1/0/1", "0x0000000001004c4b42"),
        row("10.7.0.0/16", "0.0.0.0", "BU", "NULL0"),
        row("10.6.0.0/16", "10.0.11.2", "DG", "100GE1/0/1"),
    ]
    answer["vrp-fib.text"] = answer["vrp-fib.text"].replace("Routes: 9", "Routes: 12")
    answer["vrp-fib.text"] += "".join(more)
    ports = answer["vrp-interfaces.text"]
    answer["vrp-interfaces.text"] = ports + "Port is member of Eth-Trunk7\n"
    device = read(VRP, tmp_path, LAB[0], answer)
    assert not device.unexpected
    by_network = {str(route.network): route for route in device.routes}
    assert not by_network["10.8.0.0/16"].hops[0].usable
    assert by_network["10.7.0.0/16"].hops == ()
    assert not by_network["10.6.0.0/16"].hops[0].usable
    assert device.interfaces[-1].master == "Eth-Trunk7"
    assert [remark.split(" ")[0] for remark in device.remarks] == ["1", "Eth-Trunk7"]


def test_the_calculator():
    query = Query(ip_address("10.1.1.2"), ip_address("10.1.2.2"), 49152, 4791, "100GE1/0/3")
    assert VRP.calculator.command(query) == (
        "display load-balance forwarding-path unicast interface ecmp src-interface 100GE1/0/3 "
        "src-ip 10.1.1.2 dst-ip 10.1.2.2 protocol udp l4-src-port 49152 l4-dst-port 4791 slot 1"
    )
    assert VRP.calculator.port(b"  Out Interface: 100GE1/0/2\n") == "100GE1/0/2"
    assert VRP.calculator.port(b"Error: no route\n") is None


@pytest.mark.parametrize("piece", [b"\n", b" ", b"Interface ", b"(", b": "])
def test_an_answer_of_a_calculator_without_end_takes_no_quadratic_time(piece):
    """A pattern that tries every pair of places would not end here."""
    assert VRP.calculator.port(piece * 1_000_000) is None
    assert VRP.calculator.port(b"Interface" + piece * 1_000_000 + b"x") is None


# Lines of other versions, and odd lines: one costs itself, never the answer.

FIRST = "100GE1/0/1 current state : UP (ifindex: 1)"


@pytest.mark.parametrize(
    ("state", "up"),
    [
        ("ERROR DOWN(link-flap)", False),
        ("TRIGGER DOWN (BFD)", False),
        ("Administratively DOWN", False),
        ("*down", False),
        ("STANDBY(x)", False),
        ("UP ,", True),
        ("UP (spoofing)", True),
        ("Up", True),
    ],
)
def test_states_with_their_reasons(state, up, tmp_path):
    answer = answers(LAB[0])
    answer["vrp-interfaces.text"] = answer["vrp-interfaces.text"].replace(
        FIRST, f"100GE1/0/1 current state : {state}"
    )
    device = read(VRP, tmp_path, LAB[0], answer)
    assert not device.unexpected
    assert [port.up for port in device.interfaces] == [up, True, True]
    assert {port.bits_per_second for port in device.interfaces} == {10**11}


def test_a_port_of_an_unknown_state_is_left_out_with_its_lines(tmp_path):
    answer = answers(LAB[0])
    second = "100GE1/0/2 current state : UP (ifindex: 2)"
    answer["vrp-interfaces.text"] = answer["vrp-interfaces.text"].replace(
        second, "100GE1/0/2 current state : WARP\x1b[2J"
    )
    device = read(VRP, tmp_path, LAB[0], answer)
    (line,) = device.unexpected
    assert line.startswith("`display interface`: leaf1.vrp-interfaces.text:8: unknown state 'WARP")
    assert line.endswith("; this row left out") and line.isprintable()
    assert [(p.name, len(p.addresses)) for p in device.interfaces] == [
        ("100GE1/0/1", 1), ("100GE1/0/3", 1)]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "addresses", "odd"),
    [
        ("allocated by DHCP, 10.0.11.1/30", ["10.0.11.1/30"], 0),
        ("negotiated, 10.0.11.1/32", ["10.0.11.1/32"], 0),
        ("10.0.11.1/30 Sub", ["10.0.11.1/30"], 0),
        ("10.0.11.1/255.255.255.252", ["10.0.11.1/30"], 0),
        ("0.0.0.0/24", [], 0),
        ("unnumbered, using address of LoopBack0(10.9.9.9/32)", [], 0),
        ("negotiated", [], 0),
        ("somewhere", [], 1),
        ("10.0.11.999/30", [], 1),
    ],
)
def test_addresses_however_they_are_given(text, addresses, odd, tmp_path):
    answer = answers(LAB[0])
    answer["vrp-interfaces.text"] = answer["vrp-interfaces.text"].replace("10.0.11.1/30", text)
    device = read(VRP, tmp_path, LAB[0], answer)
    assert [str(one) for one in device.interfaces[0].addresses] == addresses
    assert len(device.unexpected) == odd
    assert not device.remarks


@pytest.mark.parametrize(
    "head", ["has 1 neighbors:", "has 1 neighbor:", "has 1 neighbor(s)", "Has 1 Neighbours:"]
)
def test_heads_of_neighbours(head, tmp_path):
    def renamed(switch):
        answer = answers(switch)
        heard = answer["vrp-lldp.text"].replace("has 1 neighbor(s):", head)
        return {**answer, "vrp-lldp.text": f"<{switch.name}>\n{heard}NULL0 has 0 neighbors\n"}

    check_fabric(tmp_path, renamed)


def test_neighbours_below_a_head_that_is_not_understood_are_of_no_port(tmp_path):
    answer = answers(LAB[0])
    answer["vrp-lldp.text"] = answer["vrp-lldp.text"].replace("100GE1/0/2 has", "100GE1/0/2 had")
    device = read(VRP, tmp_path, LAB[0], answer)
    assert [(n.port, n.system) for n in device.advertised] == [("100GE1/0/1", "spine1")]
    (line,) = device.unexpected
    assert "expected no further neighbour of 100GE1/0/1; this row left out" in line


def test_an_answer_without_a_line_that_is_understood_says_so(tmp_path):
    answer = {**answers(LAB[0]), "vrp-lldp.text": "PORT 1 SEES leaf9\n"}
    device = read(VRP, tmp_path, LAB[0], answer)
    (line,) = device.unexpected
    assert "expected 'PORT has 1 neighbor(s):', found 'PORT 1 SEES leaf9'" in line
    assert device.advertised is None


@pytest.mark.parametrize("key", ["Management address", "Management address value"])
def test_management_addresses(key, tmp_path):
    answer = answers(LAB[0])
    chassis = "Chassis type                       :MAC Address\n"
    answer["vrp-lldp.text"] = answer["vrp-lldp.text"].replace(
        chassis, f"{chassis}Management address type :ipv4\n{key} :203.0.113.2\n", 1
    )
    device = read(VRP, tmp_path, LAB[0], answer)
    assert [n.addresses for n in device.advertised] == [("203.0.113.2",), ()]


def test_flags_that_a_legend_explains(tmp_path):
    answer = answers(LAB[0])
    legend = "             L - Vlink Route\n             E - Echo Route,    V - Virtual Route\n---"
    fib = answer["vrp-fib.text"].replace("---", legend, 1).replace("Routes: 9", "Routes: 10")
    answer["vrp-fib.text"] = fib + row("10.5.0.0/16", "10.0.11.2", "DGUL", "100GE1/0/1")
    device = read(VRP, tmp_path, LAB[0], answer)
    assert not device.unexpected
    assert device.routes[-1].hops[0].usable


def test_a_group_with_an_odd_member_leads_nowhere(tmp_path):
    """Without the member, all its packets would take the other."""
    answer = answers(LAB[0])
    answer["vrp-fib.text"] = answer["vrp-fib.text"].replace("10.0.12.2 ", "10.0.12.x ")
    device = read(VRP, tmp_path, LAB[0], answer)
    (line,) = device.unexpected
    assert "found '                     10.0.12.x" in line
    assert device.tables_read and len(device.routes) == 4
    assert {str(r.network): r.hops for r in device.routes}["10.1.2.0/24"] == ()
