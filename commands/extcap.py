"""`rocescope extcap`: live RoCE capture among the interfaces of Wireshark, Lua fields, colours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from shutil import which
from typing import Annotated

from ..analyzer.errors import RocescopeError, UsageError
from ..report.wireshark import comments
from . import extcap_launcher
from .options.capturing import CAPTURING, Capturing
from .options.reading import SELECTION, Selection
from .options.taps import STANDARD_OUTPUT
from .table import Parameter, changed

_NAME = "rocescope-extcap"
_PERSONAL = ".local/lib/wireshark"
_CONFIGURATION = ".config/wireshark"


def extcap(
    *,
    install: Annotated[bool, Parameter(show_default=False)] = False,
    uninstall: Annotated[bool, Parameter(show_default=False)] = False,
    list_: Annotated[bool, Parameter(name="--list", show_default=False)] = False,
    folder: Path | None = None,
    capture: str | None = None,
    selection: Annotated[Selection, Parameter(name="*", group="With --capture")] = SELECTION,
    capturing: Annotated[Capturing, Parameter(name="*", group="With --capture")] = CAPTURING,
    sample: Annotated[int, Parameter(group="With --capture")] = 1,
) -> int:
    """Add live RoCE capture, fields of packet comments and colours to Wireshark and tshark.

    Parameters
    ----------
    install
        Install the capture interfaces, the Lua file and the profile for this user.
    uninstall
        Remove what --install installed.
    list_
        Show the folders of --install, and what is installed.
    folder
        The extcap folder; default: the personal extcap folder of tshark -G folders.
    capture
        Capture this interface to standard output and write no file. Wireshark runs this command,
        and sudo needs to allow only this command.
    sample
        Keep one packet in N of each flow.
    """
    if install + uninstall + list_ + (capture is not None) != 1:
        raise UsageError("give one of --install, --uninstall, --list and --capture")
    if capture is not None:
        if folder is not None:
            raise UsageError("--folder cannot be combined with --capture")
        from .capture import capture as capture_to

        return capture_to(
            capture,
            write=STANDARD_OUTPUT,
            selection=selection,
            capturing=capturing,
            sample=sample,
            no_owners=True,
            quiet=True,
        )
    others = [*changed(selection, SELECTION), *changed(capturing, CAPTURING)]
    if others := others + ["--sample"] * (sample != 1):
        raise UsageError(f"{others[0]} needs --capture")
    known = _folders()
    home = Path.home() / _PERSONAL
    personal = known.get("Personal Extcap path")
    launcher = (folder or Path(personal or home / "extcap")) / _NAME
    fields = Path(known.get("Personal Lua Plugins") or home / "plugins") / comments.NAME
    config = Path(known.get("Personal configuration") or Path.home() / _CONFIGURATION)
    colours = config / "profiles" / comments.PROFILE / comments.COLOURS
    places = {
        launcher: _program(),
        fields: comments.text(),
        colours: comments.text(comments.COLOURS),
    }
    for place, text in places.items():
        try:
            if install:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text)
                place.chmod(0o755 if place == launcher else 0o644)
            elif uninstall:
                place.unlink(missing_ok=True)
                if place == colours and place.parent.is_dir() and not any(place.parent.iterdir()):
                    place.parent.rmdir()
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
    run = [str(beside)] if os.access(beside, os.X_OK) else [sys.executable, "-P", "-m", "rocescope"]
    code = [sys.executable, str(Path(__file__).parents[1])]
    source = source.replace("CODE: list[str] = []", f"CODE = {code!r}", 1)
    return f"#!{sys.executable} -IS\n{source.replace('RUN: list[str] = []', f'RUN = {run!r}', 1)}"
