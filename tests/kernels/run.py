"""Run a command of this checkout on another Linux kernel, in a small virtual machine.

    make test-kernel KERNEL=linux-image-6.1.0-0-amd64.deb
    make test-kernel KERNEL=... RUN='rocescope doctor'

KERNEL is a distribution's kernel package (.deb), or a folder it was unpacked into. The
machine sees the files of this one, reads them where they are and writes into memory
only; what the command prints appears here, and its exit code is that of this script.
It needs qemu-system-x86, busybox-static and kmod. Without --kvm it runs on any machine,
some ten times slower; what numba compiles there is kept for the next time.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
KEPT = Path.home() / ".cache" / "rocescope" / "test-kernel"
"""The one folder the machine writes to that stays: its exit code and compiled kernels."""
BUSYBOX = "/bin/busybox"
NEEDED = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
"""Modules it takes to see the files of this machine."""
DEFAULT = "python -m pytest -q -p no:cacheprovider tests/probes"

# Process 1 until the files are there: nothing but busybox exists.
FIRST = """#!/bin/busybox sh
/bin/busybox mkdir -p /bin /dev /lower /memory /root
/bin/busybox --install -s /bin
while read module; do insmod "/modules/$module"; done < /modules/order
share="-t 9p -o trans=virtio,version=9p2000.L,msize=1048576,cache=loose"
mount $share,ro root /lower
mount -t tmpfs -o size=90% memory /memory
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/lower,upperdir=/memory/upper,workdir=/memory/work root /root
exec switch_root /root /bin/sh -c "$(cat /second)"
"""

# Then this, in a system that looks like this machine. Ends by switching it off.
SECOND = """
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm {kept}
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t bpf bpf /sys/fs/bpf
mount -t tracefs tracefs /sys/kernel/tracing
mkdir -p /lib/modules
mount --bind {modules} /lib/modules
mount -t 9p -o trans=virtio,version=9p2000.L kept {kept}
hostname kernel-test
ip link set lo up
{environment}
cd {checkout}
(echo "Linux $(uname -r)"; sh -c {command}; echo $? > {kept}/status) </dev/null 2>&1 | cat
sync
{busybox} poweroff -f
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a command on another Linux kernel.")
    parser.add_argument("kernel", type=Path, help="kernel package (.deb) or unpacked folder")
    parser.add_argument("command", nargs="?", default=DEFAULT, help="shell command to run")
    parser.add_argument("--memory", default="4G", help="of the machine (default %(default)s)")
    parser.add_argument("--cpus", default="2", help="default %(default)s")
    parser.add_argument("--kvm", action="store_true", help="use this machine's processor")
    options = parser.parse_args()
    for tool, package in (("qemu-system-x86_64", "qemu-system-x86"), ("depmod", "kmod")):
        if not shutil.which(tool):
            parser.error(f"install {package}: {tool} is missing")
    if not Path(BUSYBOX).exists():
        parser.error(f"install busybox-static: {BUSYBOX} is missing")
    if not options.kernel.exists():
        parser.error(f"there is no {options.kernel}")
    with tempfile.TemporaryDirectory(prefix="rocescope-kernel-") as folder:
        work = Path(folder)
        kernel = options.kernel.resolve()
        if kernel.is_file():
            kernel = unpacked(kernel, work / "kernel")
        (image,) = kernel.glob("boot/vmlinuz-*")
        KEPT.mkdir(parents=True, exist_ok=True)
        status = KEPT / "status"
        status.unlink(missing_ok=True)
        start = first_files(kernel, image, work, options.command)
        how = ("kvm", "host") if options.kvm else ("tcg,thread=multi", "max")
        command = [
            *("qemu-system-x86_64", "-accel", how[0], "-cpu", how[1]),
            *("-smp", options.cpus, "-m", options.memory, "-nographic", "-no-reboot"),
            *("-nic", "none", "-monitor", "none", "-serial", "stdio"),
            *("-kernel", str(image), "-initrd", str(start)),
            *("-append", "console=ttyS0 quiet panic=-1"),
            *("-virtfs", share("/", "root") + ",readonly=on"),
            *("-virtfs", share(str(KEPT), "kept")),
        ]
        subprocess.run(command, check=False, stdin=subprocess.DEVNULL)
        try:
            return int(status.read_text())
        except (OSError, ValueError):
            print("the machine ended before the command did", file=sys.stderr)
            return 1


def unpacked(package: Path, folder: Path) -> Path:
    """The contents of a kernel package."""
    subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    return folder


def share(path: str, name: str) -> str:
    """A folder of this machine for the other one."""
    return f"local,path={path},mount_tag={name},security_model=none,multidevs=remap"


def first_files(kernel: Path, image: Path, work: Path, command: str) -> Path:
    """The archive the kernel starts from: busybox, the modules it needs first, both scripts."""
    release = image.name.removeprefix("vmlinuz-")
    root = work / "first"
    (root / "modules").mkdir(parents=True)
    (root / "bin").mkdir()
    shutil.copy(BUSYBOX, root / "bin" / "busybox")
    base = kernel / "usr" if (kernel / "usr/lib/modules").is_dir() else kernel
    subprocess.run(["depmod", "-b", base, release], check=True)
    asked = subprocess.run(
        ["modprobe", "-d", base, "-S", release, "--show-depends", "-a", *NEEDED],
        **{"check": True, "capture_output": True, "text": True},
    ).stdout
    files = [line.split()[1] for line in asked.splitlines() if line.startswith("insmod")]
    order = list(dict.fromkeys(files))
    for file in order:
        shutil.copy(file, root / "modules")
    (root / "modules" / "order").write_text("".join(f"{Path(f).name}\n" for f in order))
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin",
        "HOME": "/root",
        "NUMBA_CACHE_DIR": str(KEPT),
    }
    (root / "init").write_text(FIRST)
    (root / "init").chmod(0o755)
    (root / "second").write_text(
        SECOND.format(
            kept=shlex.quote(str(KEPT)),
            modules=shlex.quote(str(base / "lib/modules")),
            environment="\n".join(f"export {k}={shlex.quote(v)}" for k, v in environment.items()),
            checkout=shlex.quote(str(CHECKOUT)),
            command=shlex.quote(command),
            busybox=BUSYBOX,
        )
    )
    archive = work / "first.cpio"
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    packed = subprocess.run(
        [BUSYBOX, "cpio", "-o", "-H", "newc"],
        **{"cwd": root, "input": names.encode(), "capture_output": True, "check": True},
    )
    archive.write_bytes(packed.stdout)
    return archive


if __name__ == "__main__":
    sys.exit(main())
