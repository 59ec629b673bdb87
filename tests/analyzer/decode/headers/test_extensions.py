"""Extension headers on damaged frames: what the packet table holds too must be the same.

That every field of every opcode is right is compared with tshark in test_tshark.py.
"""

from __future__ import annotations

import random

import numpy as np
from batches import batch, decoder
from corpus import frame

from rocescope.analyzer.decode.headers import extensions as ext
from rocescope.analyzer.decode.headers.extensions import decode_extensions
from rocescope.analyzer.wire.packets import HAS_AETH, HAS_DETH, HAS_RETH


def test_agrees_with_the_packet_table_on_any_frames() -> None:
    rng = random.Random(5)
    frames = [frame(rng) for _ in range(10_000)]
    together = batch(
        [data for data, _, _ in frames],
        link_type=[link_type for _, link_type, _ in frames],
        wire=[wire for _, _, wire in frames],
        base_offset=777,
    )
    table = decoder().decode(together)
    found = decode_extensions(table, together.data, 777)
    for flag, bit in ((HAS_AETH, ext.AETH), (HAS_RETH, ext.RETH), (HAS_DETH, ext.DETH)):
        assert np.array_equal(table.decode_flags & flag != 0, found.present & bit != 0)
        assert np.count_nonzero(found.present & bit) > 20
    syndrome = found.aeth_syndrome.astype(np.uint32) << np.uint32(24)
    assert np.array_equal(table.aeth, syndrome | found.aeth_msn)
    assert np.array_equal(table.dma_length, found.reth_dma_length)
    assert np.array_equal(table.src_qp, found.deth_src_qp)


def test_nothing_is_made_up_for_snapped_headers() -> None:
    rng = random.Random(6)
    whole = bytes(12) + b"\x08\x00" + bytes.fromhex("450000380000000040110000")
    whole += bytes.fromhex("0a0000010a000002") + bytes.fromhex("c00012b700240000")
    whole += bytes.fromhex("0600ffff0000001200000001") + rng.randbytes(16)
    for cut in range(42 + 12, len(whole)):
        frames = batch([whole[:cut]], wire=[len(whole) + 4])
        table = decoder().decode(frames)
        found = decode_extensions(table, frames.data, 0)
        assert found.present[0] == 0 and found.reth_virtual_address[0] == 0
    frames = batch([whole], wire=[len(whole) + 4])
    found = decode_extensions(decoder().decode(frames), frames.data, 0)
    assert found.present[0] == ext.RETH
    assert int(found.reth_virtual_address[0]) == int.from_bytes(whole[54:62], "big")
