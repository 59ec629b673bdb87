"""Links of a host's NIC ports, for tests of failures."""

from rocescope.replay.fabrics.fabric import Fabric


def port_links(fabric: Fabric, host: int, port: int) -> list[int]:
    """Both directions of the cable at a port."""
    at = fabric.attachments
    return [int(at.access_link[host, port]), int(at.exit_link[host, port])]
