"""Answers of EOS switches in the shapes that ANTA's and napalm's tests show for eAPI."""

from __future__ import annotations

from typing import Any

from switch_lab import LAB, Switch


def dotted(mac: str) -> str:
    digits = mac.replace(":", "")
    return ".".join(digits[i : i + 4] for i in (0, 4, 8))


def eos_answers(switch: Switch) -> dict[str, Any]:
    ports: dict[str, Any] = {}
    routes: dict[str, Any] = {}
    heard: dict[str, Any] = {}
    for port in switch.ports:
        name, (own, _, length) = f"Ethernet{port.number}", port.address.partition("/")
        ports[name] = {
            "name": name, "lineProtocolStatus": "up", "interfaceStatus": "connected",
            "physicalAddress": switch.mac(port.number), "bandwidth": 100_000_000_000,
            "interfaceAddress": [{"primaryIp": {"address": own, "maskLen": int(length)},
                                  "secondaryIpsOrderedList": []}],
        }  # fmt: skip
        network = f"{own.rpartition('.')[0]}.0/{length}"
        routes[network] = {
            "routeType": "connected", "routeAction": "forward", "directlyConnected": True,
            "hardwareProgrammed": True, "kernelProgrammed": True, "vias": [{"interface": name}],
        }  # fmt: skip
        routes[f"{own}/32"] = {
            "routeType": "attached", "routeAction": "receive", "hardwareProgrammed": True,
            "vias": [],
        }  # fmt: skip
        if port.peer:
            peer = next(one for one in LAB if one.name == port.peer)
            heard[name] = {"lldpNeighborInfo": [{
                "systemName": f"{peer.name}.lab", "chassisId": dotted(peer.chassis),
                "chassisIdType": "macAddress", "managementAddresses": [],
                "neighborInterfaceInfo": {
                    "interfaceId": f'"Ethernet{port.peer_port}"',
                    "interfaceId_v2": f"Ethernet{port.peer_port}"},
            }]}  # fmt: skip
    for network, hops in switch.routes.items():
        routes[network] = {
            "routeType": "eBGP", "routeAction": "forward", "directlyConnected": False,
            "hardwareProgrammed": True, "kernelProgrammed": True, "preference": 20,
            "vias": [{"nexthopAddr": h.gateway, "interface": f"Ethernet{h.port}"} for h in hops],
        }  # fmt: skip
    return {
        "eos-route.json": {"vrfs": {"default": {"routingDisabled": False, "routes": routes}}},
        "eos-route6.json": {"vrfs": {"default": {"routes": {}}}},
        "eos-interfaces.json": {"interfaces": ports},
        "eos-lldp.json": {"lldpNeighbors": heard},
        "eos-arp.json": {"ipV4Neighbors": []},
        "eos-version.json": {"systemMacAddress": switch.chassis, "version": "4.32.1F"},
        "eos-hostname.json": {"hostname": switch.name, "fqdn": f"{switch.name}.lab"},
    }
