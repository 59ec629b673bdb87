"""`--second-try`: a test that fails beside others runs again, alone; only then it has failed.

Tests of live traffic, processes and screens share the machine with all other tests. One that fails
alone, too, is wrong; one that passes alone is named with its failure, so that it gets repaired.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

OPTION = "--second-try"
MOST = 10
"""More failures than that are no chance."""
SECONDS = 900
"""For one test alone, which may have kernels to compile."""


def pytest_addoption(parser):
    parser.addoption(
        OPTION,
        action="store_true",
        help="a test that fails beside others runs once more, alone, in a process of its own",
    )


@pytest.hookimpl(trylast=True)  # the workers have ended; the summary is not written yet
def pytest_sessionfinish(session, exitstatus):
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    all_ran = exitstatus == pytest.ExitCode.TESTS_FAILED  # others: interrupted, nothing collected
    if not all_ran or not config.getoption("second_try") or hasattr(config, "workerinput"):
        return
    stats = reporter.stats
    reports = [*stats.get("failed", []), *stats.get("error", [])]
    failed = dict.fromkeys(map(_node, reports))
    if len(failed) > MOST or not all(isinstance(one, pytest.TestReport) for one in reports):
        return
    alone = {node: _passes_alone(node, config) for node in failed}
    _count(stats, [one for one in reports if alone[_node(one)]])
    if all(alone.values()):
        session.exitstatus = pytest.ExitCode.OK
    reporter.ensure_newline()
    for report in reports:
        if alone[_node(report)]:
            reporter.section(f"{_node(report)}: failed beside other tests", sep="_")
            report.toterminal(reporter._tw)
    reporter.section("second try of what failed, one test at a time")
    for node, passed in alone.items():
        said = "failed beside other tests, passed alone" if passed else "failed alone, too"
        reporter.write_line(f"{said}: {node}", green=passed, red=not passed)


def _count(stats, reports):
    """Count the tests of these reports as passed."""
    for kind in ("failed", "error"):
        if left := [one for one in stats.pop(kind, []) if one not in reports]:
            stats[kind] = left
    passed = stats.setdefault("passed", [])
    counted = set(map(_node, passed))  # with an error after it
    passed += {_node(one): one for one in reports if _node(one) not in counted}.values()


def _node(report):
    """The node id; xdist appends the group of a test."""
    return re.sub(r"@[^@]*$", "", report.nodeid) if hasattr(report, "node") else report.nodeid


def _passes_alone(node, config):
    options = ["--few-examples"] if config.getoption("few_examples", False) else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", *options, node]
    adding = os.environ.get("PYTEST_ADDOPTS", "").replace(OPTION, "")
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=config.rootpath,
            env={**os.environ, "PYTEST_ADDOPTS": adding},
        )
    except subprocess.TimeoutExpired:
        return False
    last = (done.stdout.splitlines() or [""])[-1]
    # A test that was skipped did not pass.
    return done.returncode == 0 and re.match(r"1 passed( in |,)", last) is not None
