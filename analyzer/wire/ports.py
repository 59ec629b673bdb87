"""The UDP destination port of RoCEv2 (IANA: roce)."""

ROCE_UDP_PORT = 4791
