"""The packet table as Arrow record batches, and files made of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...analyzer.decode.headers.extensions import ExtensionTable
from ...analyzer.decode.multipath.mrc import MRC_COLUMNS
from ...analyzer.wire.packets import COLUMNS, PacketTable
from ...version import VERSION
