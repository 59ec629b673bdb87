"""A process that calls the real functions of libibverbs without any RDMA hardware.

libibverbs keeps its state in structs that drivers fill in; here they are crafted so
that the driver's functions lead back into this process. Run as
`python fake_verbs.py`: every line of its input is a call in JSON, answered by a line.
"""

import ctypes
import json
import struct
import sys

CONTEXT_AT = 4096
QP_BYTES = 512
ATTRIBUTE_BYTES = 144


class FakeVerbs:
    def __init__(self, device="rxe_test", cmd_fd=None):
        self.lib = ctypes.CDLL("libibverbs.so.1")
        for name in ("ibv_create_qp", "ibv_modify_qp", "ibv_destroy_qp"):
            getattr(self.lib, name).argtypes = None
        self.lib.ibv_create_qp.restype = ctypes.c_void_p
        self.answer = 0
        kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._driver = kind(lambda *_: self.answer)
        function = ctypes.cast(self._driver, ctypes.c_void_p).value
        # Every operation of the driver is the one function above.
        self._private = ctypes.create_string_buffer(struct.pack("Q", function) * 512, 4096)
        if cmd_fd is not None:  # written commands, no ioctl
            ctypes.memset(self._private, 0, 4096)
        self._device = ctypes.create_string_buffer(
            bytes(24) + device.encode().ljust(128, b"\0"), 1024
        )
        private, device_at = ctypes.addressof(self._private), ctypes.addressof(self._device)
        # verbs_context holds the pointer to the private part some words before the context.
        words = struct.pack("Q", private) * (CONTEXT_AT // 8) + struct.pack("Q", device_at)
        words += struct.pack("I", cmd_fd or 0) * 256
        self._context = ctypes.create_string_buffer(words, CONTEXT_AT + 4096)
        self.context = ctypes.addressof(self._context) + CONTEXT_AT
        self._pd = ctypes.create_string_buffer(struct.pack("Q", self.context), 64)
        self.queue_pairs = {}

    def new_qp(self, number, kind=2):
        raw = bytearray(QP_BYTES)
        struct.pack_into("Q", raw, 0, self.context)
        struct.pack_into("IIII", raw, 48, 7, number, 0, kind)
        self.queue_pairs[number] = ctypes.create_string_buffer(bytes(raw), QP_BYTES)
        return self.queue_pairs[number]

    def rename(self, name):
        """The process takes this name, of at most 15 bytes."""
        with open("/proc/self/comm", "w", encoding="utf-8") as comm:
            comm.write(name)

    def create(self, number, kind=2, fail=False):
        qp = self.new_qp(number, kind)
        self.answer = 0 if fail else ctypes.addressof(qp)
        return bool(self.lib.ibv_create_qp(self._pd, None))

    def modify(self, number, mask, fail=False, **attributes):
        self.answer = 22 if fail else 0
        attributes = ctypes.create_string_buffer(packed(**attributes), ATTRIBUTE_BYTES)
        return self.lib.ibv_modify_qp(self.queue_pairs[number], attributes, mask)

    def destroy(self, number, fail=False):
        self.answer = 16 if fail else 0
        return self.lib.ibv_destroy_qp(self.queue_pairs[number])

    def old_modify(self, number, mask, **attributes):
        """The same through the version 1.0 of the function, as very old programs call it."""
        dlvsym = ctypes.CDLL(None).dlvsym
        dlvsym.restype = ctypes.c_void_p
        handle = ctypes.c_void_p(self.lib._handle)
        address = dlvsym(handle, b"ibv_modify_qp", b"IBVERBS_1.0")
        old = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(
            address
        )
        real = ctypes.addressof(self.queue_pairs[number])
        outer = ctypes.create_string_buffer(bytes(160) + struct.pack("Q", real), 512)
        self.answer = 0
        attributes = ctypes.create_string_buffer(packed(**attributes), ATTRIBUTE_BYTES)
        return old(ctypes.addressof(outer), ctypes.addressof(attributes), mask)


def packed(
    state=0, path_mtu=0, rq_psn=0, sq_psn=0, remote_qp=0, gid="", port=0, gid_index=0, is_global=1
):
    """A struct ibv_qp_attr."""
    raw = bytearray(ATTRIBUTE_BYTES)
    struct.pack_into("II", raw, 0, state, 0)
    struct.pack_into("I", raw, 8, path_mtu)
    struct.pack_into("III", raw, 20, rq_psn, sq_psn, remote_qp)
    raw[56:72] = bytes.fromhex(gid).rjust(16, b"\0")
    raw[76], raw[85], raw[86] = gid_index, is_global, port
    return bytes(raw)


def main():
    verbs = FakeVerbs()
    for line in sys.stdin:
        name, *arguments, keywords = json.loads(line)
        print(json.dumps(getattr(verbs, name)(*arguments, **keywords)), flush=True)


if __name__ == "__main__":
    main()
