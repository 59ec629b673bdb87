"""Packet counters of Lumina's switch: checks that all packets were mirrored and captured.

The file (`switch_state_snapshot.yml` of a test's results) is YAML: RoCE packets by port,
`counter: {ingress: {132: 100}, egress: {148: 50}}`, as the switch's controller dumps them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import UnreadableInput
from ...results.captures import SwitchCheck

_MAX_BYTES = 1 << 20
_EXPECTED = "counter with ingress and egress, each a list of port: packets"


@dataclass(frozen=True, slots=True)
class SwitchCounters:
    """Packets by port."""

    ingress: dict[str, int]
    egress: dict[str, int]


def read_switch_counters(path: Path) -> SwitchCounters:
    """The counters in a file; UnreadableInput for other formats than Lumina's."""
    import yaml

    try:
        with path.open("rb") as file:
            content: Any = yaml.safe_load(file.read(_MAX_BYTES))
    except OSError as error:
        raise UnreadableInput(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UnreadableInput(f"{path} is not YAML: expected {_EXPECTED}") from None
    counter = content.get("counter") if isinstance(content, dict) else None
    if not isinstance(counter, dict):
        raise UnreadableInput(f"{path}: expected {_EXPECTED}")
    return SwitchCounters(_ports(path, counter, "ingress"), _ports(path, counter, "egress"))


def _ports(path: Path, counter: dict[Any, Any], way: str) -> dict[str, int]:
    ports = counter.get(way)
    if not isinstance(ports, dict) or not ports:
        raise UnreadableInput(f"{path}: no {way}: expected {_EXPECTED}")
    for port, packets in ports.items():
        if type(packets) is not int or packets < 0:
            raise UnreadableInput(f"{path}: {way} of port {port} is not a number of packets")
    return {str(port): packets for port, packets in ports.items()}


def check_switch(counters: SwitchCounters, captured: int) -> SwitchCheck:
    """The counters compared with the captured packets.

    Ports that send and never receive are mirror ports: dumpers only listen. All packets received at
    other ports should leave at the mirror ports, and all of these should be captured.
    """
    mirrors = [
        port for port, sent in counters.egress.items() if sent and not counters.ingress.get(port)
    ]
    received = sum(counters.ingress.values())
    mirrored = sum(counters.egress[port] for port in mirrors)
    return SwitchCheck(
        mirror_ports=mirrors,
        received_packets=received,
        mirrored_packets=mirrored,
        captured_packets=captured,
        agrees=received == mirrored == captured,
    )
