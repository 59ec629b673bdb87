"""The table of commands: module, help and examples of each. It loads no command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

# Annotations of command arguments, without loading cyclopts.


def Parameter(**options: Any) -> Any:
    """A `cyclopts.Parameter` if cyclopts is loaded, otherwise only its options.

    Annotations stay strings until they are evaluated.
    """
    if "cyclopts" not in sys.modules:
        return SimpleNamespace(**options)
    from cyclopts import Parameter as Real

    return Real(**options)


def changed(group: Any, usual: Any) -> list[str]:
    """The options that differ between two instances of a group, as typed on the command line."""
    return [
        "--" + field.name.replace("_", "-")
        for field in fields(group)
        if getattr(group, field.name) != getattr(usual, field.name)
    ]


class Command(NamedTuple):
    """A command of the command line."""

    module: str
    """Module under `commands` with a function of its name, or `module:function`."""
    help: str
    examples: str
    note: str = ""
    """Further sentence of the help."""

    @property
    def place(self) -> str:
        """`module:function`."""
        module, _, function = self.module.partition(":")
        return f"{__package__}.{module}:{function or module}"

    def load(self) -> Callable[..., Any]:
        """Import the module and return the function."""
        module, _, name = self.place.partition(":")
        function: Callable[..., Any] = getattr(import_module(module), name)
        return function


COMMANDS = {
    "agent": Command(
        "agent",
        "Export measures of this host's RoCE traffic to Prometheus.",
        """\
Examples:
  sudo rocescope agent eth2
  sudo rocescope agent eth2 --listen :9791 \\
      --tls-certificate host.pem --tls-key host.key
  rocescope agent eth2 --source queue-pairs
  curl -s '127.0.0.1:9791/flows?top=5' | jq '.flows[].late_packets'
""",
        "The filter runs in the kernel.",
    ),
    "aggregate": Command(
        "aggregate",
        "Compare schemes of in-network aggregation on the same switch memory.",
        """\
Examples:
  rocescope aggregate --fabric leaf-spine:leaves=1,spines=1,hosts=72,rate=100G \\
      --jobs count=4,model=comm --jobs count=4,model=comp --memory 2048
  rocescope aggregate --fabric leaf-spine:leaves=4,spines=4,hosts=8,rate=100G \\
      --jobs workers=16,racks=4,model=resnet50,scale=0.01 -s atp -s esa
  rocescope aggregate job.pcap --fabric lab.yaml --map order -s atp:rto=50us
""",
        "csv, parquet and arrow contain one row per scheme and job.",
    ),
    "analyze": Command(
        "analyze",
        "Report what every queue pair did, from captures or live interfaces.",
        """\
Examples:
  rocescope analyze capture.pcap.gz
  rocescope analyze leaf1-spine*.pcap --path-by tap
  rocescope analyze --tap leaf1-spine3=up3.pcap --tap leaf2-spine3=down3.pcap
  rocescope analyze ring --tap 'ring/(?P<tap>[^/]+)/'
  rocescope analyze leaf*.pcap --cluster local:4 --work job -o results
  rocescope analyze capture.pcapng --filter 'ip.src == 10.0.1.0/24 and not cnp'
  rocescope analyze capture.pcap --format json | jq '.flows[].spraying_width'
  tcpdump -i eth2 -s 128 -w - udp port 4791 | rocescope analyze -
  sudo rocescope analyze --live eth2 --duration 1m
""",
        "csv, parquet and arrow contain one row per flow.",
    ),
    "capture": Command(
        "capture",
        "Capture RoCE packets on interfaces into a pcapng file.",
        """\
Examples:
  sudo rocescope capture eth2 -w roce.pcapng
  sudo rocescope capture eth2 eth3 --hook xdp -w - | rocescope analyze -
  sudo rocescope capture eth2 -w roce.pcapng --annotate
  sudo rocescope capture eth2 -w roce.pcapng --rotate-size 1GB --files 10
  sudo rocescope capture eth2 -w one.pcapng --filter 'qp == 0x1a2b or cnp'
""",
        "The filter runs in the kernel.",
    ),
    "check": Command(
        "check",
        "Check conformance of captured traffic to the protocol rules.",
        """\
Examples:
  rocescope check capture.pcap.gz
  rocescope check sender.pcap receiver.pcap --format json
  rocescope check capture.pcap --counters before.txt after.txt --host 10.0.0.1
""",
        "csv, parquet and arrow contain one row per violation.",
    ),
    "compare": Command(
        "compare",
        "Compare two analyses: findings that are new, worse, better or gone, and key figures.",
        """\
Examples:
  rocescope compare before.json after.json
  rocescope compare before.json capture.pcap --fail-on worse
  rocescope compare a.pcap b.pcap --format json | jq '.findings[].change'
""",
        "rocescope analyze -o before.json writes the JSON of captures.",
    ),
    "completion": Command(
        "app:completion",
        "Print the completion script of bash, zsh or fish.",
        """\
Examples:
  rocescope completion bash > \\
      ~/.local/share/bash-completion/completions/rocescope
  rocescope completion zsh > "${fpath[1]}/_cyclopts_rocescope"
  rocescope completion fish > ~/.config/fish/completions/rocescope.fish
""",
        "Save it where the shell looks for completions, then start a new shell.",
    ),
    "discover": Command(
        "discover",
        "Read a fabric from the answers of its switches and hosts.",
        """\
Examples:
  rocescope discover --commands linux
  rocescope discover answers/ -o fabric.yaml
  rocescope discover inventory.yaml -o fabric.yaml --raw answers/
  rocescope discover answers/ --format json | jq '.remarks[]'
""",
        "The dialects linux and frr are tested on real systems. The other dialects follow "
        "public documentation and are not tested on devices; an answer that differs from the "
        "documentation is reported.",
    ),
    "doctor": Command(
        "doctor",
        "Test what live capture needs on this host and show what to install.",
        """\
Examples:
  sudo rocescope doctor
  rocescope doctor --format json | jq '.checks[] | select(.state != "ok")'
""",
    ),
    "export": Command(
        "export",
        "Write packets as a table, or frames with findings as comments for Wireshark.",
        """\
Examples:
  rocescope export capture.pcap -o packets.parquet
  rocescope export --pcapng leaf1-spine*.pcap -o commented.pcapng
  rocescope export capture.pcap -o acks.arrow --filter 'opcode == RC_ACK'
""",
    ),
    "extcap": Command(
        "extcap",
        "Add live RoCE capture, fields of packet comments and colours to Wireshark and tshark.",
        """\
Examples:
  rocescope extcap --install
  rocescope extcap --list
  sudo rocescope extcap --install \\
      --folder /usr/lib/x86_64-linux-gnu/wireshark/extcap
""",
        "See docs/wireshark.md.",
    ),
    "fabric": Command(
        "fabric",
        "Show, check and convert a fabric of switches and hosts.",
        """\
Examples:
  rocescope fabric leaf-spine:leaves=8,spines=16,hosts=16,rate=800G
  rocescope fabric fat-tree:k=8,down=leaf1-spine2
  rocescope fabric multi-plane:planes=8,leaves=512,spines=256,hosts=256
  rocescope fabric my-fabric.yaml --format json
  rocescope fabric leaf-spine:leaves=4 --to yaml -o my-fabric.yaml
""",
    ),
    "live": Command(
        "tui:live",
        "Show interfaces live in the terminal UI, captured with eBPF.",
        """\
Examples:
  sudo rocescope live eth2
  sudo rocescope live eth2 eth3 --hook xdp
""",
        "The filter runs in the kernel.",
    ),
    "tui": Command(
        "tui",
        "Show captures in the terminal UI.",
        """\
Examples:
  rocescope tui capture.pcap.gz
  rocescope tui leaf1-spine*.pcap
  rocescope tui capture.pcap --nccl-log 'logs/*'
  rocescope tui capture.pcapng --filter 'ip.src == 10.0.1.0/24'
""",
    ),
    "recover-seed": Command(
        "recover_seed",
        "Find hash, fields and seed of a switch from captures of its parallel links.",
        """\
Examples:
  rocescope recover-seed up1.pcap up2.pcap up3.pcap up4.pcap
  rocescope recover-seed leaf1-spine*.pcap --from 10.1.0.0/16 --format json
  rocescope recover-seed up1.pcap up2.pcap --hash jenkins --fields 5-tuple+qpn
""",
        "csv, parquet and arrow contain one row per candidate.",
    ),
    "replay": Command(
        "replay",
        "Replay traffic on a fabric with several load-balancing strategies.",
        """\
Examples:
  rocescope replay hosts.pcap --fabric leaf-spine:leaves=4,spines=4 --map order
  rocescope replay h1.pcap h2.pcap --fabric lab.yaml -s ecmp:hash=crc32
  rocescope replay --pattern permutation:qps=4 --fabric fat-tree:k=8 -s ecmp
  rocescope replay --jobs workers=8,size=1MB --fabric fat-tree:k=4 -s jsq
  rocescope replay --pattern incast --fabric fat-tree:k=4 --vary rate=100G,400G
  rocescope replay --pattern incast --fabric fat-tree:k=4 --lossless infinite
""",
        "csv, parquet and arrow contain one row per link.",
    ),
    "schema": Command(
        "export:schema",
        "Print the JSON Schema of the results of a command.",
        """\
Examples:
  rocescope schema > rocescope.schema.json
  rocescope schema sweep > sweep.schema.json
""",
    ),
    "sweep": Command(
        "sweep",
        "Show the distribution of imbalance over hash seeds.",
        """\
Examples:
  rocescope sweep hosts.pcap --fabric lab.yaml --hash crc32 --production 0x1234
  rocescope sweep hosts.pcap --fabric lab.yaml --map order --seeds 0:100000
  rocescope sweep --pattern random --fabric fat-tree:k=8 --per-switch equal
""",
        "csv, parquet and arrow contain one row per histogram bin.",
    ),
    "trace": Command(
        "trace",
        "Show the path of every flow on a fabric, with the evidence of each hop.",
        """\
Examples:
  rocescope trace h1.pcap h2.pcap --fabric fabric.yaml
  rocescope trace leaf1-spine*.pcap --fabric fabric.yaml -s static -s assign
  rocescope trace h1.pcap --fabric fabric.yaml --format csv -o paths.csv
""",
        "csv, parquet and arrow contain one row per flow.",
    ),
    "warm-up": Command(
        "warm_up",
        "Compile the kernels of other commands, on all cores.",
        """\
Examples:
  rocescope warm-up
  rocescope warm-up --for analyze --for tui
""",
    ),
}
