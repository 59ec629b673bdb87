"""Write the golden files anew, after a deliberate change of an output format."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import msgspec

GOLDEN = Path(__file__).parent
sys.path.insert(0, str(GOLDEN.parent / "support"))

import factories_results as factories  # noqa: E402
from rich.console import Console  # noqa: E402

from rocescope.report.files import encode  # noqa: E402
from rocescope.report.terminal.report import Report  # noqa: E402


def report_text(name: str, width: int, encoding: str = "utf-8", color: bool = False) -> str:
    """The terminal report of a factory's analysis as it would be printed."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding, newline="\n")
    system = "standard" if color else None
    console = Console(
        file=stream, width=width, color_system=system, force_terminal=color, highlight=False
    )
    Report(getattr(factories, name)(), console, 20, False).print()
    stream.seek(0)
    return stream.read()


REPORTS = {
    "report-80.txt": ("analysis", 80, "utf-8"),
    "report-140.txt": ("analysis", 140, "utf-8"),
    "report-ascii-80.txt": ("analysis", 80, "ascii"),
    "report-clean-80.txt": ("clean_analysis", 80, "utf-8"),
    "report-doubtful-80.txt": ("doubtful_analysis", 80, "utf-8"),
}

if __name__ == "__main__":
    analysis = factories.analysis()
    text = msgspec.json.format(encode(analysis, "json"), indent=1)
    (GOLDEN / "analysis.json").write_bytes(text)
    (GOLDEN / "flows.csv").write_bytes(encode(analysis, "csv"))
    for file, (name, width, encoding) in REPORTS.items():
        (GOLDEN / file).write_text(report_text(name, width, encoding))
