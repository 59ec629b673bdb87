"""Fixtures and settings every test shares."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

pytest_plugins = ["any_folder", "networks", "second_try", "tui_fixtures"]

# Kernels compile on their first call, so an example may take seconds.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("local")  # `--hypothesis-profile=ci`: the same examples in every run

PACKAGES = {
    "capinfos": "wireshark-common",
    "chromedriver": "chromium-driver",
    "editcap": "wireshark-common",
    "mergecap": "wireshark-common",
    "ip": "iproute2",
    "tc": "iproute2",
    "lz4": "lz4",
    "mount": "mount",
    "objdump": "binutils",
    "readelf": "binutils",
    "nsenter": "util-linux",
    "munged": "munge",
    "promtool": "prometheus",
    "setpriv": "util-linux",
    "sharkd": "wireshark-common",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
    "systemd-analyze": "systemd",
    "unshare": "util-linux",
    "vtysh": "frr",
    "xz": "xz-utils",
    "zstd": "zstd",
}
"""Debian packages of the tools whose package has another name."""


# As the command line does: tests load hundreds of thousands of objects that are no garbage.
gc.set_threshold(100_000, 20, 20)

# A shell starts background jobs with SIGINT ignored, and processes that the tests start would
# ignore it too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# nohup ignores SIGHUP in the same way: a handler protects as well, and processes start without it.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-tools",
        action="store_true",
        help="a test that lacks a tool, a package or a right fails instead of being skipped",
    )
    parser.addoption(
        "--few-examples",
        action="store_true",
        help="a quarter of the examples of every property: `make thorough` tries all of them",
    )
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the golden files anew: look at what changed",
    )

    parser.addoption(
        "--record-kernels",
        action="store_true",
        help="add calls of kernels that no library holds to the kernels.json of their rooms",
    )


_NOTES = pytest.StashKey[tempfile.TemporaryDirectory[str]]()
"""Where this run and the processes that it starts note calls that no library holds."""


@pytest.hookimpl(trylast=True)  # hypothesis has loaded the profile of the command line
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("few_examples"):
        settings.register_profile("few", max_examples=settings.default.max_examples // 4)
        settings.load_profile("few")
    if hasattr(config, "workerinput") or config.getoption("collectonly"):
        return
    from rocescope.kernels.build import OBJECTS, linker, run
    from rocescope.kernels.kernel import RECORD

    config.stash[_NOTES] = tempfile.TemporaryDirectory()
    if RECORD not in os.environ:
        os.environ[RECORD] = config.stash[_NOTES].name
    os.environ["ROCESCOPE_KERNEL_OBJECTS"] = OBJECTS  # also for copies of the checkout
    if linker() is not None:
        run()  # else the first tests would, and print it


def pytest_sessionfinish(session: pytest.Session) -> None:
    notes = session.config.stash.get(_NOTES, None)
    if notes is None:
        return
    from rocescope.kernels.calls import merge, noted

    lines = noted(notes.name)  # only `make test` has to have all: other calls are compiled
    notes.cleanup()
    if lines and session.config.getoption("record_kernels"):
        merge(lines)
    elif lines and session.exitstatus == 0 and "not thorough" in session.config.option.markexpr:
        session.exitstatus = 1
        names = sorted({" ".join(json.loads(line)[:2]) for line in lines})
        print(f"\nno library holds these calls (pytest --record-kernels): {', '.join(names)}")


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the checkout, which is also the root of the package."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data(checkout: Path) -> Path:
    """The folder of bundled captures."""
    return checkout / "tests" / "data"


@pytest.fixture(scope="session")
def unavailable(pytestconfig: pytest.Config) -> Callable[[str], NoReturn]:
    """`unavailable("needs root")` skips the test.

    With `--require-tools` (as .ci/run has it) the test fails instead, so that no check is lost
    unnoticed.
    """

    def give_up(reason: str) -> NoReturn:
        if pytestconfig.getoption("require_tools"):
            pytest.fail(reason)
        pytest.skip(reason)

    return give_up


@pytest.fixture(scope="session")
def need_tool(unavailable: Callable[[str], NoReturn]) -> Callable[[str], str]:
    """`need_tool("tshark")` is its path; a test whose tool is missing is `unavailable`."""

    def need(name: str) -> str:
        package = PACKAGES.get(name, name)
        return shutil.which(name) or unavailable(f"needs {name}: apt install {package}")

    return need


@pytest.fixture(scope="session")
def libibverbs(unavailable: Callable[[str], NoReturn]) -> str:
    """The path of the installed libibverbs."""
    from rocescope.probes.owners.uprobes import installed_libraries

    found = installed_libraries()
    return found[0] if found else unavailable("needs libibverbs: apt install libibverbs1")


@pytest.fixture(scope="session")
def root(unavailable: Callable[[str], NoReturn]) -> None:
    """For `usefixtures`: the test loads probes, makes networks or becomes another user."""
    if os.geteuid() != 0:
        unavailable("needs root")


@pytest.fixture
def golden(checkout: Path, pytestconfig: pytest.Config) -> Callable[[str, str], None]:
    """`golden("docs/screens/qps.svg", text)`: the file holds exactly this text."""

    def compare(name: str, text: str) -> None:
        path = checkout / name
        if pytestconfig.getoption("update_golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        kept = path.read_bytes().decode()
        if text != kept:
            # A picture names itself after its content on every line.
            lines = (re.sub(r"terminal-\d+", "", one).splitlines() for one in (kept, text))
            changed = "\n".join(islice(unified_diff(*lines, lineterm="", n=0), 40))
            pytest.fail(f"{name} differs: pytest --update-golden, then look at it\n{changed}")

    return compare


_FIRST = (
    "tests/fuzz/",
    "tests/replay/compare/test_packets.py",
    "tests/kernels/test_kernel.py",
    "tests/lab/",
    "tests/probes/",
    "tests/replay/",
    "tests/commands/live/",
    "tests/docs/",
    "tests/discovery/",
    "tests/tui/",
    "tests/end_to_end/",
    "tests/test_packaging.py",
)


_BOUNDS_CHECKED = (
    "test_never_reads_outside_a_frame",
    "test_random_and_damaged_captures_with_bounds_checks",
)


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several workers (`pytest -n`) the tests of a file share one, and so do all that watch
    libibverbs: its probes see the calls of every process. Tests of kernels with bounds checks have
    one worker, too: it compiles them once, and no other one waits.

    The first two compile most kernels, one of the analyzer and one of the replays, while no other
    worker needs them. The longest files follow, so that no worker is left with one at the end.
    """
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        path = item.path.as_posix()
        needs = getattr(item, "fixturenames", ())
        watches = "libibverbs" in needs or "/probes/owners/" in path
        bounds = "/fuzz/" in path or item.name in _BOUNDS_CHECKED
        group = "bounds" if bounds else "libibverbs" if watches else path
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: _turn(item.path.as_posix()))


def _turn(path: str) -> int:
    return next((i for i, part in enumerate(_FIRST) if part in path), len(_FIRST))
