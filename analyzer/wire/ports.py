"""The UDP destination port of RoCEv2 (IANA: roce)."""

from __future__ import annotations

ROCE_UDP_PORT = 4791
