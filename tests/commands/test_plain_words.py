"""What is understood without cyclopts means what cyclopts makes of it; all else is left to it."""

from __future__ import annotations

from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.commands import plain_words
from rocescope.commands.app import app, run_words
from rocescope.commands.plain_words import QUICK, NotPlain, arguments_of, plain_call
from rocescope.commands.table import COMMANDS

WORDS = [
    *("a.pcap", "b", "/dev/stdin", "-", "--", "", "table", "json", "JSON", "xml", "7", "-7", "007"),
    *(
        "--format",
        "--format=json",
        "--format=",
        "-f",
        "-fjson",
        "-f=csv",
        "--output",
        "-o",
        "out.csv",
    ),
    *("--top", "--top=5", "--top=x", "5", "1_0", "0x10", "--concat", "--concat=yes", "--no-concat"),
    *(
        "--filter",
        "cnp and qp == 1",
        "--window",
        "1ms",
        "--path-by",
        "--path_by",
        "tap",
        "--udp-port",
    ),
    *("--fabric", "--strategy", "--strategy=ecmp", "-s", "-s=ofan", "reps:evs=64", "--fail=1%"),
    *("--live", "--count", "-c", "--color", "always", "--help", "--version", "--unknown", "-x"),
]


def by_cyclopts(words: list[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    return bound.args, bound.kwargs


@examples(300)
@given(st.sampled_from(QUICK), st.lists(st.sampled_from(WORDS), max_size=5))
def test_plain_words_mean_what_cyclopts_says(command: str, words: list[str]) -> None:
    function = COMMANDS[command].load()
    try:
        positional, options = arguments_of(function, words)
    except NotPlain:
        return
    assert by_cyclopts([command, *words]) == (tuple(positional), options)


@pytest.mark.parametrize(
    "line",
    [
        "analyze a.pcap",
        "analyze a.pcap b.pcap --format json -o out.json --path-by tap --concat --top=5",
        "analyze --live eth0 -c 10",
        "export a.pcap -o a.parquet",
        "replay --pattern random:qps=4 --fabric fat-tree:k=8",
        "tui a.pcap",
    ],
)
def test_everyday_lines_are_plain(line: str) -> None:
    assert plain_call(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--help",
        "schema",
        "plain_words",
        "live",
        "analyze --help",
        "analyze a.pcap --format xml",
        "analyze a.pcap --format json --format csv",
        "analyze a.pcap --top",
        "analyze a.pcap --output -o",
        "analyze -- a.pcap",
        "export a.pcap",
    ],
)
def test_the_rest_is_for_cyclopts(line: str) -> None:
    assert plain_call(line.split()) is None


def test_mistakes_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="xml"):
        run_words(["analyze", "a.pcap", "--format", "xml"])


def test_arguments_in_front_of_the_files_are_for_cyclopts() -> None:
    def command(pattern: str, *files: str) -> None: ...

    with pytest.raises(NotPlain):
        plain_words.arguments_of(command, ["a"])
