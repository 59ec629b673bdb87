"""Stand-ins for the kernel headers that bcc includes into every program.

The probes do not use them. With these stand-ins bcc compiles on machines with and
without kernel headers.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TYPES = """\
typedef signed char __s8, s8;
typedef unsigned char __u8, u8;
typedef short __s16, s16;
typedef unsigned short __u16, u16, __be16, __le16, __sum16;
typedef int __s32, s32;
typedef unsigned int __u32, u32, __be32, __le32, __wsum;
typedef long long __s64, s64;
typedef unsigned long long __u64, u64, __be64, __le64;
typedef __u64 __attribute__((aligned(8))) __aligned_u64;
typedef _Bool bool;
typedef unsigned long size_t, uintptr_t;
#define NULL ((void *)0)
#define true 1
#define false 0
"""

_HEADERS = {
    "include/linux/kconfig.h": "#define CONFIG_BPF_SYSCALL 1\n",
    "include/linux/types.h": f"#pragma once\n{_TYPES}",
    "include/uapi/linux/types.h": "#include <linux/types.h>\n",
    "include/uapi/linux/bpf.h": "",  # bcc has its own
    "include/uapi/linux/bpf_common.h": "",
    "include/linux/bpf_common.h": "",
    "include/uapi/linux/if_packet.h": "",
    "include/uapi/linux/if_ether.h": "",
    "include/linux/version.h": (
        "#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + (c))\n"
        "#define LINUX_VERSION_CODE KERNEL_VERSION(5, 15, 0)\n"
    ),
    "include/linux/log2.h": "",
    "include/asm/page.h": "#define PAGE_SIZE 4096\n",
    "include/generated/autoconf.h": "",
}

_VARIABLE = "BCC_KERNEL_SOURCE"


@contextmanager
def stub_headers() -> Iterator[None]:
    """Context manager in which bcc compiles against the stand-ins."""
    with tempfile.TemporaryDirectory(prefix="rocescope-headers-") as folder:
        for name, text in _HEADERS.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="ascii")
        before = os.environ.get(_VARIABLE)
        os.environ[_VARIABLE] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ[_VARIABLE]
            else:
                os.environ[_VARIABLE] = before
