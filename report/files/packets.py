"""The packet table as Arrow record batches, and files made of them."""

from __future__ import annotations
