"""The filter is run here as the kernel runs it, over calls of both machines."""

import errno
import struct
from collections.abc import Sequence

import pytest

from daemon.sandbox.bubblewrap import filter_for
from tests.unit.sandbox import calls

LONGEST = 4096
"""BPF_MAXINSNS."""

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
EPERM, ENOSYS, EAFNOSUPPORT = (ERRNO | each for each in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT))

HIGH = 0xDEAD_BEEF << 32
"""Bits of an argument that the kernel does not look at."""

both = pytest.mark.parametrize("column", range(2), ids=calls.MACHINES)


def answer(column: int, number: int, *arguments: int, architecture: int | None = None) -> int:
    """The answer of a machine's filter to a call."""
    found = filter_for(calls.MACHINES[column])
    assert found
    known = calls.ARCHITECTURES[column] if architecture is None else architecture
    padded = [*arguments, *[0] * (6 - len(arguments))]
    return run(list(struct.iter_unpack("<HBBI", found)), struct.pack("<IIQ6Q", number, known, 0, *padded))


def run(program: Sequence[tuple[int, ...]], data: bytes) -> int:
    """Run a program of classic BPF over a `struct seccomp_data`."""
    at = accumulator = 0
    while True:
        code, if_true, if_false, value = program[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == 0x06:
            return value
        else:
            true = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[
                code
            ]
            at += if_true if true else if_false


@both
def test_a_call_that_servers_need_is_allowed_whatever_its_arguments(column: int) -> None:
    for name, numbers in calls.ORDINARY.items():
        for arguments in ((), (2**64 - 1,) * 6):
            assert answer(column, numbers[column], *arguments) == ALLOW, name


@both
def test_a_call_that_no_server_needs_is_refused_whatever_its_arguments(column: int) -> None:
    for name, numbers in calls.REFUSED.items():
        for arguments in ((), (2**64 - 1,) * 6):
            assert answer(column, numbers[column], *arguments) == EPERM, name


@both
def test_no_other_number_is_refused(column: int) -> None:
    judged = {each[column] for each in (calls.CLONE3, calls.SOCKET, calls.SOCKETPAIR)}
    refused = {each[column] for each in calls.REFUSED.values()} | (
        set() if column else set(calls.ONLY_X86.values())
    )
    assert {number for number in range(470) if answer(column, number) != ALLOW} == refused | judged


@both
def test_a_number_newer_than_the_table_is_unknown_and_so_is_one_of_x32(column: int) -> None:
    x32 = 0x40000000
    for number in (470, 511, 1 << 20, x32, x32 | 165, x32 | 512, 2**31, 2**32 - 1):
        assert answer(column, number) == ENOSYS


@both
def test_a_call_of_another_architecture_ends_the_process(column: int) -> None:
    i386, arm = 0x40000003, 0x40000028
    for architecture in (i386, arm, calls.ARCHITECTURES[1 - column], 0):
        for number in (0, 1, 60, 470):
            assert answer(column, number, architecture=architecture) == KILL


@both
@pytest.mark.parametrize("namespace", [1 << bit for bit in (17, 25, 26, 27, 28, 29, 30)])
def test_clone_makes_threads_and_processes_and_no_namespace(column: int, namespace: int) -> None:
    thread, fork, vfork = 0x003D0F00, 0x01200011, 0x00004111
    for flags in (thread, fork, vfork):
        assert answer(column, calls.CLONE[column], flags) == ALLOW
        assert answer(column, calls.CLONE[column], flags | HIGH) == ALLOW
        assert answer(column, calls.CLONE[column], flags | namespace) == EPERM
        assert answer(column, calls.CLONE[column], flags | namespace | HIGH) == EPERM


@both
def test_clone3_is_unknown_so_that_libraries_use_clone(column: int) -> None:
    assert answer(column, calls.CLONE3[column], 0x7FFF_0000_0000, 88) == ENOSYS


@both
@pytest.mark.parametrize("typing", [0x5412, 0x541C])
def test_nothing_is_typed_into_a_terminal(column: int, typing: int) -> None:
    for command in (typing, typing | HIGH, typing | 1 << 32):
        assert answer(column, calls.IOCTL[column], 0, command) == EPERM
    for command in (0x5401, 0x5413, 0x5421, 0x5411, typing << 32):
        assert answer(column, calls.IOCTL[column], typing, command) == ALLOW


@both
@pytest.mark.parametrize("call", [calls.SOCKET, calls.SOCKETPAIR])
def test_sockets_are_of_families_that_stay_in_the_network_namespace(column: int, call: tuple[int, int]) -> None:
    allowed = {1, 2, 10, 16}
    for family in range(64):
        for high in (0, HIGH):
            expected = ALLOW if family in allowed else EAFNOSUPPORT
            assert answer(column, call[column], family | high, 1, 0) == expected
    assert answer(column, call[column], 2**64 - 1) == EAFNOSUPPORT


@both
def test_the_personality_may_be_asked_for_and_not_changed(column: int) -> None:
    for persona in (0, 0xFFFFFFFF, 0xFFFFFFFF | HIGH):
        assert answer(column, calls.PERSONALITY[column], persona) == ALLOW
    for persona in (8, 0x40000, 0x400000, 0x20000):
        assert answer(column, calls.PERSONALITY[column], persona) == EPERM


@both
def test_the_program_is_one_that_the_kernel_takes(column: int) -> None:
    found = filter_for(calls.MACHINES[column])
    assert found
    program = list(struct.iter_unpack("<HBBI", found))
    assert len(program) <= LONGEST
    for at, (code, if_true, if_false, value) in enumerate(program):
        assert code in {0x20, 0x06, 0x15, 0x35, 0x45}
        assert at + 1 + max(if_true, if_false) < len(program) or code == 0x06
        assert code != 0x20 or (value % 4 == 0 and value < 64)
    assert program[-1][0] == 0x06


def test_a_filter_is_made_once_and_only_for_known_machines() -> None:
    assert filter_for("x86_64") is filter_for("x86_64")
    assert filter_for("x86_64") != filter_for("aarch64")
    assert [filter_for(name) for name in ("riscv64", "aarch64_be", "i686", "")] == [None] * 4
