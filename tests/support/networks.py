"""Real links for the probes: veth pairs in network namespaces of their own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from network import Network

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def live_capture(unavailable: Callable[[str], NoReturn], need_tool: Callable[[str], str]) -> None:
    """Skips the test where probes cannot be attached; fails it where they have to be."""
    from rocescope.analyzer.errors import CaptureError
    from rocescope.probes import live as privileges
    from rocescope.probes.program.compile import import_bcc

    need_tool("ip")
    try:
        privileges.check(["some"])
        import_bcc()
    except CaptureError as error:
        unavailable(str(error))


@pytest.fixture
def network(live_capture: None) -> Iterator[Callable[..., Network]]:
    """`network(mtu=1500)` is a new namespace with the linked interfaces `left` and `right`."""
    from network import Network

    with ExitStack() as stack:

        def make(**options: int) -> Network:
            name = f"rstest{os.getpid()}n{next(_NUMBERS)}"
            return stack.enter_context(Network(name, **options))

        yield make
