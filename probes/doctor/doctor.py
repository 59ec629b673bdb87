"""Checks of the requirements of live capture on this host."""

from __future__ import annotations

from collections.abc import Callable

from . import check_hooks, check_kernel, check_software
from .diagnosis import Check, Diagnosis

_CHECKS: tuple[Callable[[], Check], ...] = (
    check_kernel.kernel,
    check_kernel.capabilities,
    check_software.bcc,
    check_software.compiling,
    check_kernel.loading,
    check_kernel.ring_buffer,
    check_hooks.tc_hook,
    check_hooks.xdp_hook,
    check_hooks.other_programs,
    check_hooks.uprobes,
    check_software.libibverbs,
    check_software.rdma_devices,
    check_software.queue_pair_table,
    check_software.tshark,
    check_kernel.clock,
    check_kernel.locked_memory,
    check_kernel.unprivileged_bpf,
    check_kernel.btf,
    check_kernel.tracefs,
    check_kernel.kernel_options,
)


def diagnose() -> Diagnosis:
    """Run all checks; never raises."""
    checks = [_safely(look) for look in _CHECKS]
    works = all(check.state != "missing" for check in checks if check.needed)
    return Diagnosis(works, checks)


def _safely(look: Callable[[], Check]) -> Check:
    try:
        return look()
    except Exception as error:  # a failed check must not end the others
        name = look.__name__.replace("_", " ")
        return Check(name, "limited", f"the check failed: {type(error).__name__}: {error}")
