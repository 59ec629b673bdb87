"""The commands with their help and examples, for cyclopts; each is loaded when it runs."""

from __future__ import annotations

from cyclopts import App, CycloptsError, Parameter

from .. import __version__
from ..analyzer.errors import UsageError

ANALYZE_EXAMPLES = """\
Examples:
  rocescope analyze capture.pcap.gz
  rocescope analyze leaf1-spine*.pcap --path-by tap
  rocescope analyze capture.pcapng --filter 'ip.src == 10.0.1.0/24 and not cnp'
  rocescope analyze capture.pcap --format json | jq '.flows[].spraying_width'
  tcpdump -i eth2 -s 128 -w - udp port 4791 | rocescope analyze -
  sudo rocescope analyze --live eth2 --duration 1m
"""
CHECK_EXAMPLES = """\
Examples:
  rocescope check capture.pcap.gz
  rocescope check sender.pcap receiver.pcap --format json
  rocescope check capture.pcap --counters before.txt after.txt --host 10.0.0.1
"""
EXPORT_EXAMPLES = """\
Examples:
  rocescope export capture.pcap -o packets.parquet
  rocescope export capture.pcap -o acks.arrow --filter 'opcode == RC_ACK'
"""
CAPTURE_EXAMPLES = """\
Examples:
  sudo rocescope capture eth2 -w roce.pcapng
  sudo rocescope capture eth2 eth3 --hook xdp -w - | rocescope analyze -
  sudo rocescope capture eth2 -w roce.pcapng --rotate-size 1GB --files 10
  sudo rocescope capture eth2 -w one.pcapng --filter 'qp == 0x1a2b or cnp' --duration 10s
"""
DOCTOR_EXAMPLES = """\
Examples:
  sudo rocescope doctor
  rocescope doctor --format json | jq '.checks[] | select(.state != "ok")'
"""
FABRIC_EXAMPLES = """\
Examples:
  rocescope fabric leaf-spine:leaves=8,spines=16,hosts=16,rate=800G
  rocescope fabric fat-tree:k=8,down=leaf1-spine2
  rocescope fabric multi-plane:planes=8,leaves=512,spines=256,hosts=256,rate=100G
  rocescope fabric my-fabric.yaml --format json
  rocescope fabric leaf-spine:leaves=4 --to yaml -o my-fabric.yaml
"""
LIVE_EXAMPLES = """\
Examples:
  sudo rocescope live eth2
  sudo rocescope live eth2 eth3 --hook xdp
"""
TUI_EXAMPLES = """\
Examples:
  rocescope tui capture.pcap.gz
  rocescope tui leaf1-spine*.pcap
  rocescope tui capture.pcapng --filter 'ip.src == 10.0.1.0/24'
"""
RECOVER_SEED_EXAMPLES = """\
Examples:
  rocescope recover-seed up1.pcap up2.pcap up3.pcap up4.pcap
  rocescope recover-seed leaf1-spine*.pcap --from 10.1.0.0/16 --format json
  rocescope recover-seed up1.pcap up2.pcap --hash jenkins --fields 5-tuple+qpn
"""
REPLAY_EXAMPLES = """\
Examples:
  rocescope replay hosts.pcap --fabric leaf-spine:leaves=4,spines=4 --map order
  rocescope replay h1.pcap h2.pcap --fabric lab.yaml -s ecmp:hash=crc32 -s assign
  rocescope replay --pattern permutation:qps=4 --fabric fat-tree:k=8 -s ecmp
"""
SWEEP_EXAMPLES = """\
Examples:
  rocescope sweep hosts.pcap --fabric lab.yaml --hash crc32 --production 0x1234
  rocescope sweep hosts.pcap --fabric lab.yaml --map order --seeds 0:100000
  rocescope sweep --pattern random:qps=4 --fabric fat-tree:k=8 --per-switch equal
"""
SCHEMA_EXAMPLES = """\
Examples:
  rocescope schema > rocescope.schema.json
  rocescope schema sweep > sweep.schema.json
"""
EPILOGUE = """\
Start with: rocescope analyze capture.pcap

Data goes to standard output, words and progress to standard error.
Exit codes: 0 done, 1 failed, 2 usage, 3 no permission to capture,
4 input that cannot be read or not to its end, 130 interrupted.
--traceback, given to any command, shows where an internal error happened.
"""

app = App(
    name="rocescope",
    help="Show what every queue pair of a RoCEv2 capture did: paths, reordering, loss, congestion.",
    help_epilogue=EPILOGUE,
    help_format="plaintext",
    version=__version__,
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,
    default_parameter=Parameter(negative=""),
    result_action="return_value",
)
app["--help"].group = app["--version"].group = "Options"
for _name, _help, _examples in (
    ("analyze", "Report what every queue pair did, in captures or live.", ANALYZE_EXAMPLES),
    ("capture", "Capture RoCE packets of interfaces into a pcapng file.", CAPTURE_EXAMPLES),
    ("check", "Check the rules of the protocol, in captures.", CHECK_EXAMPLES),
    ("doctor", "Show what live capture needs of this host and what to install.", DOCTOR_EXAMPLES),
    ("export", "Write one row per RoCE packet to a Parquet or Arrow file.", EXPORT_EXAMPLES),
    ("fabric", "Show, check and convert a fabric of switches and hosts.", FABRIC_EXAMPLES),
    ("live", "Watch interfaces in the terminal UI, by eBPF.", LIVE_EXAMPLES),
    ("tui", "Look at captures in the terminal UI.", TUI_EXAMPLES),
    (
        "recover-seed",
        "Find a switch's hash, fields and seed from captures of its parallel links.",
        RECOVER_SEED_EXAMPLES,
    ),
    ("replay", "Place traffic on a fabric by several strategies.", REPLAY_EXAMPLES),
    ("schema", "Print the JSON Schema of the results of a command.", SCHEMA_EXAMPLES),
    ("sweep", "Show how imbalance is distributed over hash seeds.", SWEEP_EXAMPLES),
):
    _module = _name.replace("-", "_")
    app.command(
        f"rocescope.commands.{_module}:{_module}", name=_name, help=_help, help_epilogue=_examples
    )
app.command(
    "rocescope.commands.replay.generate:application",
    name="generate",
    help="Write traffic of a pattern, or of MRC, as a pcap.",
)


def run_words(words: list[str]) -> object:
    """Run a command line and hand back what its command does. UsageError for mistakes in it."""
    try:
        return app(words)
    except CycloptsError as error:
        raise UsageError(str(error)) from None
