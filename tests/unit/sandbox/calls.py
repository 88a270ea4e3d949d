"""System calls by name, with their numbers on x86-64 and arm64, as in the kernel's headers."""

from pathlib import Path

from tests.unit.cases import rows_of

MACHINES = ("x86_64", "aarch64")
ARCHITECTURES = (0xC000003E, 0xC00000B7)
"""AUDIT_ARCH_X86_64 and AUDIT_ARCH_AARCH64."""

ORDINARY = dict[str, tuple[int, int]](rows_of(Path(__file__), "ordinary"))
"""Calls that servers, their runtimes, package managers and browsers need."""

REFUSED = dict[str, tuple[int, int]](rows_of(Path(__file__), "refused"))
"""Calls that are refused whatever their arguments."""

ONLY_X86 = {"iopl": 172, "ioperm": 173, "modify_ldt": 154}
CLONE, IOCTL, SOCKET, SOCKETPAIR = (56, 220), (16, 29), (41, 198), (53, 199)
PERSONALITY, CLONE3 = (135, 92), (435, 435)
