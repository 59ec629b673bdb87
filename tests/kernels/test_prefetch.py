"""The hint reaches the processor and reads nothing."""

from typing import Any, cast

import numba
import numpy as np

from rocescope.kernels.kernel import kernel
from rocescope.kernels.prefetch import prefetch_item

FAR = 1 << 50


@kernel
def hinted(flat, records):
    prefetch_item(flat, 1)
    prefetch_item(flat, -FAR)
    prefetch_item(records, FAR)
    prefetch_item(records.count, 1)
    prefetch_item(records.count, -FAR)
    return flat[0] + records[0].count


def assembly_of(function, *arguments):
    compiled = numba.njit(cast(Any, function).__wrapped__)  # machine code of a cache has no text
    compiled(*arguments)
    (assembly,) = compiled.inspect_asm().values()
    return assembly


def test_hints_are_instructions_that_may_name_any_address():
    records = np.array([(3,)], [("count", np.int64)])
    flat = np.ones(4, np.int64)
    assert hinted(flat, records) == 4

    assert assembly_of(hinted, flat, records).count("prefetch") >= 5


def test_an_item_is_where_the_array_has_it():
    """Five records of 24 bytes behind the first."""
    records = np.zeros(4, [("a", np.int64), ("b", np.int64), ("c", np.int64)])

    @kernel
    def fifth(records):
        prefetch_item(records, 5)
        return records[0].a

    lines = assembly_of(fifth, records).splitlines()
    hints = [line for line in lines if "prefetch" in line]
    assert any("120(" in line for line in hints), hints
