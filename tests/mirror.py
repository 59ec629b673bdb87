"""The tests mirror the source: `tests/a/test_b.py` tests `a/b.py`. Run by `make lint`.

`tests/unmirrored.txt` lists the modules that have no test file of their name. It may only shrink:
a module that gets its test leaves the list, and a new module comes with its test. `MOST` holds it
to that: it is the length of the list, and only ever lowered. Tests of whole paths are in the
folders of `WHOLE_PATHS`.
"""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent
CHECKOUT = TESTS.parent
LIST = TESTS / "unmirrored.txt"
MOST = 207
WHOLE_PATHS = ("benchmarks", "data", "docs", "end_to_end", "fuzz", "golden", "lab", "support")
ABOUT_THE_WHOLE = {"tests/test_import_hygiene.py", "tests/test_packaging.py"}
NO_SOURCE = ("benchmarks", "build", "dist", "docs", "tests")


def modules() -> set[str]:
    """Every module of the package with something to test: no `__init__.py` and no `__main__.py`."""
    paths = (path.relative_to(CHECKOUT) for path in CHECKOUT.rglob("*.py"))
    return {
        path.as_posix()
        for path in paths
        if not path.name.startswith("__")
        and not path.parts[0].startswith(".")
        and path.parts[0] not in NO_SOURCE
    }


def test_of(module: str) -> str:
    path = Path(module)
    return f"tests/{path.with_name(f'test_{path.name}').as_posix()}"


def tests() -> set[str]:
    """Every test file that must have a module."""
    found = (path.relative_to(CHECKOUT) for path in TESTS.rglob("test_*.py"))
    return {path.as_posix() for path in found if path.parts[1] not in WHOLE_PATHS} - ABOUT_THE_WHOLE


def faults(modules: set[str], tests: set[str], listed: set[str]) -> list[str]:
    """One line for every file that is out of place."""
    mirrors = {test_of(module): module for module in modules}
    return [
        *(
            f"{module}: has no {test}"
            for test, module in mirrors.items()
            if test not in tests and module not in listed
        ),
        *(f"{test}: tests no module of its name" for test in tests - mirrors.keys()),
        *(
            f"{LIST.name}: remove {module}, it has its test"
            for module in listed & modules
            if test_of(module) in tests
        ),
        *(f"{LIST.name}: remove {module}, there is no such module" for module in listed - modules),
        *length_faults(len(listed)),
    ]


def length_faults(length: int) -> list[str]:
    """A longer list is refused, a shorter one makes the limit lower."""
    if length > MOST:
        return [
            f"{LIST.name}: {length} modules, {MOST} are allowed: write the tests of new modules"
        ]
    return [f"{Path(__file__).name}: set MOST to {length}"] if length < MOST else []


def main() -> int:
    found = faults(modules(), tests(), set(LIST.read_text().split()))
    print("\n".join(sorted(found)) or "every module has its test or is in tests/unmirrored.txt")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
