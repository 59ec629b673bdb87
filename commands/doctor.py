"""`rocescope doctor`: test what live capture needs on this host, with remedies."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Literal

from ..analyzer.errors import CaptureError

if TYPE_CHECKING:
    from ..probes.doctor import Check, Diagnosis

_NAME_WIDTH = 18
_STATE_WIDTH = 9
_WIDEST = 100
_STYLES = {"ok": "green", "limited": "yellow", "missing": "bold red"}


def doctor(*, format: Literal["table", "json"] = "table") -> int:
    """Test what live capture needs on this host and show what to install or run.

    Parameters
    ----------
    format
        table: lines for people; json: everything.
    """
    from ..probes.doctor import diagnose

    diagnosis = diagnose()
    if format == "json":
        import msgspec

        from ..report.files import encode_json

        print(msgspec.json.format(encode_json(diagnosis), indent=2).decode())
    else:
        _print(_lines(diagnosis, min(shutil.get_terminal_size().columns, _WIDEST)))
    sys.stdout.flush()
    return 0 if diagnosis.live_capture_works else CaptureError.exit_code


def _print(lines: list[str]) -> None:
    """The lines of the report, with coloured states on a colour terminal."""
    from rich.text import Text

    from ..report.terminal.page import SafeConsole

    console = SafeConsole(highlight=False, soft_wrap=True)
    for line in lines:
        text = Text(line)
        state = line[2 : 2 + _STATE_WIDTH].strip()
        if state in _STYLES:
            text.stylize(_STYLES[state], 2, 2 + len(state))
        console.print(text)


def _lines(diagnosis: Diagnosis, width: int) -> list[str]:
    needed = [check for check in diagnosis.checks if check.needed]
    others = [check for check in diagnosis.checks if not check.needed]
    lines = ["Needed for live capture"]
    for check in needed:
        lines += _check_lines(check, width)
    lines += ["", "More"]
    for check in others:
        lines += _check_lines(check, width)
    if diagnosis.live_capture_works:
        verdict = "Live capture works. Start with: sudo rocescope capture IFACE -w roce.pcapng"
    else:
        names = ", ".join(check.name for check in needed if check.state == "missing")
        verdict = f"Live capture does not work: see {names}. Capture files can still be analysed."
    return [*lines, "", *textwrap.wrap(verdict, width)]


def _check_lines(check: Check, width: int) -> list[str]:
    indent = " " * (2 + _STATE_WIDTH + _NAME_WIDTH)
    head = f"  {check.state:<{_STATE_WIDTH}}{check.name:<{_NAME_WIDTH}}"
    lines = _wrapped(check.found, head, indent, width)
    if check.meaning:
        lines += _wrapped(check.meaning, f"{indent}- ", f"{indent}  ", width)
    if check.remedy:
        lines += _wrapped(check.remedy, f"{indent}> ", f"{indent}  ", width)
    return lines


def _wrapped(text: str, first: str, rest: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, max(width, 60), initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )
