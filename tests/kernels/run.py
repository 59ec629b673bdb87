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
import lzma
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from shlex import quote

CHECKOUT = Path(__file__).resolve().parents[2]
KEPT = Path.home() / ".cache" / "rocescope" / "test-kernel"
"""The one folder the machine writes to that stays: its exit code and compiled kernels."""
BUSYBOX = Path("/bin/busybox")
NEEDED = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
"""Modules it takes to see the files of this machine."""
TOOLS: dict[str | Path, str] = {
    "qemu-system-x86_64": "qemu-system-x86",
    "depmod": "kmod",
    BUSYBOX: "busybox-static",
}
DEFAULT = "python -m pytest -q -p no:cacheprovider tests/probes"

# Process 1 until the files are there: only busybox exists.
FIRST = """#!/bin/busybox sh
/bin/busybox mkdir -p /dev /lower /memory /root
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
mkdir -p /dev/pts /dev/shm /lib/modules {kept}
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t bpf bpf /sys/fs/bpf
mount -t tracefs tracefs /sys/kernel/tracing
mount --bind {modules} /lib/modules
mount -t 9p -o trans=virtio,version=9p2000.L kept {kept}
hostname kernel-test
ip link set lo up
export HOME=/root NUMBA_CACHE_DIR={kept} PATH={tools}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin
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
    missing = [package for tool, package in TOOLS.items() if not shutil.which(tool)]
    if missing:
        parser.error(f"install {' '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="rocescope-kernel-") as folder:
        kernel: Path = options.kernel.resolve()
        if kernel.is_file():
            subprocess.run(["dpkg-deb", "-x", kernel, f"{folder}/kernel"], check=True)
            kernel = Path(folder) / "kernel"
        images = sorted(kernel.glob("boot/vmlinuz-*"))
        if not images:
            parser.error(f"no kernel in {options.kernel}: give a package (KERNEL=linux-image.deb)")
        start = first_files(kernel, images[0], Path(folder), options.command)
        KEPT.mkdir(parents=True, exist_ok=True)
        (KEPT / "status").unlink(missing_ok=True)
        how = ("kvm", "host") if options.kvm else ("tcg,thread=multi", "max")
        machine = ["qemu-system-x86_64", "-accel", how[0], "-cpu", how[1], "-smp", options.cpus]
        machine += ["-m", options.memory, "-display", "none", "-no-reboot", "-nic", "none"]
        machine += ["-monitor", "none", "-serial", "stdio"]
        machine += ["-kernel", str(images[0]), "-initrd", str(start)]
        machine += ["-append", "console=ttyS0 quiet panic=-1"]
        machine += ["-virtfs", share("/", "root") + ",readonly=on", "-virtfs", share(KEPT, "kept")]
        subprocess.run(machine, check=False, stdin=subprocess.DEVNULL)
    try:
        return int((KEPT / "status").read_text())
    except (OSError, ValueError):
        print("the machine ended before the command did", file=sys.stderr)
        return 1


def share(path: str | Path, name: str) -> str:
    """A folder of this machine for the other one."""
    return f"local,path={path},mount_tag={name},security_model=none,multidevs=remap"


def first_files(kernel: Path, image: Path, work: Path, command: str) -> Path:
    """The archive the kernel starts from: busybox, the modules it needs first, both scripts."""
    root, release = work / "first", image.name.removeprefix("vmlinuz-")
    base = kernel / "usr" if (kernel / "usr/lib/modules").is_dir() else kernel
    for name in ("bin", "modules"):
        (root / name).mkdir(parents=True)
    shutil.copy(BUSYBOX, root / "bin")
    subprocess.run(["depmod", "-b", base, release], check=True)
    asked = ["modprobe", "-d", str(base), "-S", release, "--show-depends", "-a", *NEEDED]
    lines = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.splitlines()
    files = [Path(line.split()[1]) for line in lines if line.startswith("insmod")]
    for file in files:
        code = lzma.open(file).read() if file.suffix == ".xz" else file.read_bytes()
        (root / "modules" / file.name).write_bytes(code)
    order = dict.fromkeys(file.name for file in files)
    (root / "modules" / "order").write_text("".join(f"{name}\n" for name in order))
    (root / "init").write_text(FIRST)
    (root / "init").chmod(0o755)
    filled = SECOND.format(
        kept=quote(str(KEPT)),
        modules=quote(str(base / "lib/modules")),
        tools=quote(str(Path(sys.executable).parent)),
        checkout=quote(str(CHECKOUT)),
        command=quote(command),
        busybox=BUSYBOX,
    )
    (root / "second").write_text(filled)
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    pack = [str(BUSYBOX), "cpio", "-o", "-H", "newc"]
    made = subprocess.run(pack, cwd=root, input=names.encode(), capture_output=True, check=True)
    (work / "first.cpio").write_bytes(made.stdout)
    return work / "first.cpio"


if __name__ == "__main__":
    sys.exit(main())
