"""Every command of README and docs runs as written, and prints the output on the page.

What differs: `sudo` runs its arguments as they are, interfaces are a veth pair, live commands end
after two seconds, `recover-seed` tries fewer seeds, and the reader's own files are bundled ones.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from network import Network, roce_frames
from pages import CHECKOUT, Block, blocks, commands, demo, missing, pages, run, working_folder
from real_terminal import terminals

SPINES = "tests/data/leafspine/r01_clean_write/leaf1-spine{}.pcap.gz"
FILES = {
    "capture.pcap": "tests/data/c10_rping_ipv4.atB.pcap",
    "capture.pcap.gz": "tests/data/c05_rc_atomic_fetchadd.atB.pcap",
    "capture.pcapng": "tests/data/h01_rxe_at_the_host.pcapng.gz",
    "sender.pcap": "tests/data/i01_write_loss0.5_AtoB.atA.pcap.gz",
    "receiver.pcap": "tests/data/i01_write_loss0.5_AtoB.atB.pcap.gz",
    **{f"leaf1-spine{n}.pcap": SPINES.format(n) for n in range(1, 5)},
    **{f"ring/leaf1-spine{n}/up_1.pcap": SPINES.format(n) for n in range(1, 3)},
}
"""Names of the reader's own files on the pages, and the bundled captures that stand for them."""
MANY_HOSTS = "rocescope generate permutation --hosts 32 --messages 1 -o hosts.pcap"
"""Makes the capture of a whole fabric that no bundled one is."""
COUNTERS = {"before.txt": "duplicate_request 1\n", "after.txt": "duplicate_request 1\n"}
"""Counters of a host, saved before and after a capture in which they did not grow."""

NOT_RUN = {
    "make test": "runs this test",
    "make check": "runs this test",
    "make thorough": "takes many minutes",
    "make format": "changes the checkout",
    "make bench": "takes many minutes",
    "make test-kernel": "takes a kernel package",
    "make docs": "tests/docs/test_reference.py and this file hold its results",
    "make fuzz": "takes many minutes",
    "make reproductions": "takes many minutes",
    "make faults": "takes many minutes",
    "make views": "takes many minutes",
    "pipx install": "tests/test_packaging.py installs the wheel",
    "pip install": "the test environment has it",
    "make dist": "tests/test_packaging.py builds both files",
    "make sbom": "tests/test_packaging.py makes it",
    "make deb": "tests/test_packaging.py builds the package",
    "tcpdump -i eth1": "a mirror port",
    "sudo rocescope agent": "runs until it is stopped: tests/commands/test_agent.py",
    "curl -s 127.0.0.1:9791": "asks a running agent: tests/commands/test_agent.py",
    "rocescope analyze ring --tap 'ring/(?P<tap>[^/]+)/' --cluster tls": "a scheduler of Dask",
    "rocescope analyze s3://captures": "a store: tests/end_to_end/test_object_store.py",
    "rocescope analyze --concat /var/lib/rocescope": "recordings of an agent",
    "ip ": "routers: tests/end_to_end/replay/test_linux_router.py reads their tables",
    "lldpctl": "routers: tests/replay/fabrics/test_linux_tables.py reads its answers",
    "sysctl": "routers: tests/end_to_end/replay/test_linux_router.py reads their tables",
    "rocescope fabric linux:": "routers: tests/end_to_end/replay/test_linux_router.py",
    "rocescope trace --hosts inventory": "tests/commands/test_trace.py",
    "rocescope discover inventory": "tests/end_to_end/test_real_fabric.py",
    "rocescope discover answers": "docs/discovery.md reads recorded answers",
    "rocescope trace h1.pcap": "tests/commands/test_trace.py",
    "rocescope trace leaf1": "tests/commands/test_trace.py",
    "rocescope check requester.pcap": "Lumina's files: tests/end_to_end/test_lumina.py",
    "tail ": "reads what the command before it wrote until it was interrupted",
}
"""Beginnings of command lines that do not run here, and why."""
SUBSTITUTED = {
    "rocescope recover-seed": "rocescope recover-seed --seeds 0x12340000:0x12350000",
}
"""What runs in place of parts of a command line: all 2^32 seeds take a minute of processor time."""
EXIT_CODES = {"rocescope check capture.pcap --counters": (0, 1), "rocescope doctor": (0, 3)}
"""Allowed exit codes other than 0, by the beginning of the command line."""

Folders = Callable[[str], tuple[Path, dict[str, str]]]
SHELL = [block for page in pages() for block in blocks(page) if block.language == "sh"]


def _is_live(command: str) -> bool:
    return command.startswith("sudo ") or "-i eth2" in command


def _is_screen(command: str) -> bool:
    return re.search(r"rocescope (tui|live) ", command) is not None


def _short(line: str) -> str:
    """A live command that ends after two seconds of capture, or 50 packets."""
    first, pipe, rest = line.partition("|")
    first = first.replace(" --duration 1m", " --duration 2s").replace("tcpdump ", "tcpdump -c 50 ")
    if re.search(r"rocescope (capture|analyze) ", first) and "--duration" not in first:
        first = f"{first.rstrip()} --duration 2s "
    return first + pipe + rest


def _on_interfaces(block: Block) -> bool:
    return any(map(_is_live, commands(block)))


def _ids(block: Block) -> str:
    return f"{block.page}: {block.text.splitlines()[0]}"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """The working folder of a page, in which its commands find what earlier ones wrote."""
    made: dict[str, tuple[Path, dict[str, str]]] = {}

    def folder_of(page: str) -> tuple[Path, dict[str, str]]:
        if page not in made:
            folder = tmp_path_factory.mktemp("page")
            environment = working_folder(folder)
            for name, capture in FILES.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).symlink_to(CHECKOUT / capture)
            for name, text in COUNTERS.items():
                (folder / name).write_text(text)
            if "hosts.pcap" in (CHECKOUT / page).read_text():
                run(MANY_HOSTS, folder, environment)
            made[page] = folder, environment
        return made[page]

    return folder_of


@contextmanager
def traffic() -> Iterator[Network]:
    """A namespace with eth2 and eth3 in it, and RoCE packets on both."""
    with Network(f"rspages{os.getpid()}") as network:
        for name, other in (("left", "eth2"), ("right", "eth3")):
            network.ip("link", "set", name, "name", other)
        done = threading.Event()

        def send() -> None:
            for first in itertools.count(0, 100):
                network.send(roce_frames(first + 100)[first:], "eth2")
                if done.wait(0.1):
                    return

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield network
        finally:
            done.set()
            thread.join()


MET_FIRST = ("README.md", "docs/tutorial.md")
_RUN: set[str] = set()
"""Command lines that ran already, on whatever page: without an output to compare once is enough."""


def _blocks(on_interfaces: bool) -> list[Any]:
    """Of every page; those of other pages than README.md are thorough."""
    return [
        pytest.param(block, marks=() if block.page == "README.md" else pytest.mark.thorough)
        for block in SHELL
        if _on_interfaces(block) == on_interfaces
    ]


@pytest.mark.parametrize("block", _blocks(on_interfaces=False), ids=_ids)
def test_commands_run_as_written(
    block: Block, folders: Folders, need_tool: Callable[[str], str]
) -> None:
    run_block(block, *folders(block.page), need_tool)


@pytest.mark.thorough
@pytest.mark.usefixtures("live_capture")
@pytest.mark.parametrize("block", _blocks(on_interfaces=True), ids=_ids)
def test_commands_on_interfaces_run_as_written(
    block: Block, folders: Folders, need_tool: Callable[[str], str]
) -> None:
    """eth2 and eth3 are a veth pair with RoCE packets on it."""
    run_block(block, *folders(block.page), need_tool)


def run_block(
    block: Block, folder: Path, environment: dict[str, str], need_tool: Callable[[str], str]
) -> None:
    """Run the commands of a block, then compare the output of the last one with the page."""
    printed = ""
    for command in commands(block):
        again = command in _RUN and block.output is None and " -o " not in command
        if again or any(command.startswith(start) for start in NOT_RUN):
            continue
        _RUN.add(command)
        for tool in ("jq", "tcpdump"):
            if f"{tool} " in command:
                need_tool(tool)
        line = demo() if command == "make demo" else command
        for part, other in SUBSTITUTED.items():
            line = line.replace(part, other)
        with traffic() if _is_live(command) else nullcontext() as network:
            if network:
                line = shlex.quote(line if _is_screen(command) else _short(line))
                line = f"ip netns exec {network.name} bash -o pipefail -c {line}"
            if _is_screen(command):
                _look(line, folder, environment, need_tool)
                continue
            done = run(line, folder, environment)
        allowed = next((c for start, c in EXIT_CODES.items() if command.startswith(start)), (0,))
        assert done.returncode in allowed, f"{line}\n{done.stderr}"
        printed = done.stdout
    if block.output is not None:
        assert missing(block.output, printed) is None, printed


def _look(
    line: str, folder: Path, environment: dict[str, str], need_tool: Callable[[str], str]
) -> None:
    """The terminal UI comes up and ends by its key."""
    need_tool("tmux")
    place = folder / "terminal"
    place.mkdir(exist_ok=True)
    path = f"PATH={environment['PATH']}"
    with terminals(place) as terminal:
        window = terminal(["env", "-C", str(folder), path, "bash", "-c", line], 110, 32)
        window.wait("q quit")
        window.keys("q")
        window.wait("exit code 0")
    shutil.rmtree(place)


def test_outputs_follow_commands() -> None:
    """Each `text` block with an output is that of the `sh` block before it."""
    for page in MET_FIRST:
        shown = (CHECKOUT / page).read_text().count("```text\n")
        assert shown == sum(block.output is not None for block in SHELL if block.page == page) > 0


@pytest.mark.parametrize(
    ("shown", "lacks"),
    [
        ("a\nb\n", None),
        ("a\n", "a"),
        ("...\nb\n", None),
        ("...\na\n...\n", None),
        ("b\n...\na\n", "a"),
        ("...\nc\n", "c"),
        ("\n", ""),
    ],
)
def test_missing(shown: str, lacks: str | None) -> None:
    assert missing(shown, "a\nb  \n") == lacks


def _named_files(page: Path) -> Iterator[str]:
    """What a page names in backticks or links to that looks like a file or folder of ours."""
    text = page.read_text()
    rooms = {path.name for path in CHECKOUT.iterdir() if path.is_dir() and path.name[0] != "."}
    for name in re.findall(r"`([\w./-]+)`", text):
        if name.partition("/")[0] in rooms and "/" in name and "your_" not in name:
            yield name
        elif re.fullmatch(r"[\w-]+\.(py|bpf\.c|bpf\.h|tcss)", name):
            yield f"**/{name}"
    for name in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        yield str(page.parent.relative_to(CHECKOUT) / name)


@pytest.mark.parametrize(
    "page", [*pages(), CHECKOUT / "CHANGELOG.md"], ids=lambda page: str(page.relative_to(CHECKOUT))
)
def test_named_files_exist(page: Path) -> None:
    examples = "two_choices short_packets default_class checksum acme aimd first_come".split()
    invented = {f"**/{test}{name}.py" for name in examples for test in ("", "test_")}
    for name in set(_named_files(page)) - invented:
        assert next(CHECKOUT.glob(name.rstrip("/")), None), f"{page.name} names {name}"


ROOMS = sorted(path.parent.name for path in CHECKOUT.glob("*/__init__.py"))
NOT_OURS = {"libbcc.py", "_version.py"}
"""Files of packages that the product reads."""


def test_files_that_the_code_names_exist() -> None:
    """In comments and docstrings: a file that is moved or renamed is also renamed there."""
    files = [path for room in ROOMS for path in (CHECKOUT / room).rglob("*.py")]
    known = {f"/{path.relative_to(CHECKOUT)}" for path in (*files, *CHECKOUT.glob("*.py"))}
    for file in files:
        for name in set(re.findall(r"(?<![\w.*/])[\w/]+\.py\b", file.read_text())) - NOT_OURS:
            exists = any(path.endswith(f"/{name}") for path in known)
            assert exists, f"{file.relative_to(CHECKOUT)} names {name}"


def test_links_to_sections_exist() -> None:
    for page in pages():
        for name, anchor in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", page.read_text()):
            other = page.parent / name if name else page
            titles = re.findall(r"^#+ (.+)$", other.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor in anchors, f"{page.name} links to {name}#{anchor}"
