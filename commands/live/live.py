"""`rocescope live`: interfaces of this host in the terminal UI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from ..options.inputs import check_terminal
from ..options.parameter import Parameter
from .capturing import said_if_slow


def live(
    *interfaces: Annotated[str, Parameter(required=True, name="IFACE")],
    filter: str | None = None,
    netns: str | None = None,
    hook: Literal["tc", "xdp", "xdp-generic", "clsact"] = "tc",
    ports: Annotated[list[int] | None, Parameter(negative="", consume_multiple=True)] = None,
    sample: int = 1,
    record: Path | None = None,
) -> int:
    """Watch interfaces in the terminal UI, by eBPF.

    Parameters
    ----------
    interfaces
        Interfaces, as NETNS:IFACE where they are in another network namespace.
    filter
        Only packets that pass a filter in Wireshark's notation, checked in the kernel.
    netns
        Network namespace of the interfaces: a name of `ip netns`, a path, or pid:N.
    hook
        tc sees both directions; xdp only what arrives, at the highest rates.
    ports
        UDP destination ports that carry RoCE, 4791 unless given.
    sample
        Keep one packet in this many of each flow.
    record
        Write what is captured to this pcapng too: packets, time windows and replays then
        work while it goes on.
    """
    from ...probes.hooks.interfaces import find_interfaces
    from ...probes.live import LiveOptions
    from ...probes.rights import privileges
    from ...tui.app.app import RocescopeApp
    from ...tui.session.feeds.live import open_live
    from ...tui.session.feeds.recording import open_recorded
    from ...tui.settings import load

    options = LiveOptions(
        hook=hook, namespace=netns, udp_ports=tuple(ports or (4791,)), sample=sample, filter=filter
    )
    settings = load()
    # What is wrong with rights and names is said before the screen is taken over.
    privileges.check([netns, *(name.rpartition(":")[0] for name in interfaces)])
    find_interfaces(list(interfaces), netns)
    check_terminal()
    with said_if_slow("still preparing: the first run on a machine compiles its kernels"):
        session = (
            open_live(interfaces, options, attach_now=True)
            if record is None
            else open_recorded(interfaces, options, record, attach_now=True)
        )
    app = RocescopeApp(session, settings)
    app.run()
    return app.return_code or 0
