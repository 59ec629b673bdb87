"""The packet filter: Wireshark-like text compiled to masks over the packet table."""

from .compiler import Filter, compile_filter

__all__ = ["Filter", "compile_filter"]
