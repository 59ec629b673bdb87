"""`rocescope extcap`: live RoCE capture among the interfaces of Wireshark, and its Lua fields."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from shutil import which
from typing import Annotated

from ...analyzer.errors import RocescopeError, UsageError
from ...report.wireshark import plugin
from ..options.parameter import Parameter
from . import extcap_launcher

_NAME = "rocescope-extcap"
_PERSONAL = ".local/lib/wireshark"


def extcap(
    *,
    install: Annotated[bool, Parameter(show_default=False)] = False,
    uninstall: Annotated[bool, Parameter(show_default=False)] = False,
    list_: Annotated[bool, Parameter(name="--list", show_default=False)] = False,
    folder: Path | None = None,
) -> int:
    """Add live RoCE capture, and fields of packet comments, to Wireshark and tshark.

    Parameters
    ----------
    install
        Install the capture interfaces and the Lua file for this user.
    uninstall
        Remove both.
    list_
        Show where they are, or would be.
    folder
        The extcap folder; default: the personal one that tshark names.
    """
    if install + uninstall + list_ != 1:
        raise UsageError("give one of --install, --uninstall and --list")
    known = _folders()
    home = Path.home() / _PERSONAL
    personal = known.get("Personal Extcap path")
    launcher = (folder or Path(personal or home / "extcap")) / _NAME
    fields = Path(known.get("Personal Lua Plugins") or home / "plugins") / plugin.NAME
    places = {launcher: _program(), fields: plugin.text()}
    for place, text in places.items():
        try:
            if install:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text)
                place.chmod(0o755 if place == launcher else 0o644)
            elif uninstall:
                place.unlink(missing_ok=True)
        except OSError as error:
            raise RocescopeError(f"{place}: {(error.strerror or '').lower()}") from None
        state = "installed" if place.is_file() else "removed" if uninstall else "not installed"
        print(f"{place}: {state}")
    if install and folder is None and personal is None:
        print(
            f"rocescope: Wireshark before 4.2 has no personal extcap folder: set"
            f" WIRESHARK_EXTCAP_DIR={launcher.parent}, or as root --folder"
            f" {known.get('Extcap path', '/usr/lib/wireshark/extcap')}",
            file=sys.stderr,
        )
    return 0


def _folders() -> dict[str, str]:
    """The folders that tshark names; empty without tshark."""
    tool = which("tshark")
    if tool is None:
        return {}
    try:
        done = subprocess.run([tool, "-G", "folders"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    lines = (line.partition(":") for line in done.stdout.splitlines())
    return {name.strip(): path.strip() for name, _, path in lines if path.strip()}


def _program() -> str:
    """The launcher for this installation."""
    source = Path(extcap_launcher.__file__).read_text()
    beside = Path(sys.executable).parent / "rocescope"
    run = [str(beside)] if os.access(beside, os.X_OK) else [sys.executable, "-m", "rocescope"]
    return f"#!{sys.executable} -IS\n{source.replace('RUN: list[str] = []', f'RUN = {run!r}', 1)}"
