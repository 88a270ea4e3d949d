"""Unpacks zip archives from outside, with limits on bytes and files, and never outside the directory."""

from __future__ import annotations

import io
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import file_digest
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import BadZipFile, ZipFile, ZipInfo

from daemon.kit.wording import MIB
from daemon.safety.escape import visible
from daemon.sources.offers import SourceTrouble

MOST_UNPACKED, MOST_RATIO, MOST_FILES, MOST_PARTS = 1024 * MIB, 200, 50_000, 64
"""Limits of bytes, of the whole's compression ratio, of files, and of directories above a file. Programs
shrink to a fifth, deflate reaches 1,032 to one; a large `node_modules` has 20,000 files and directories."""

DAMAGED = SourceTrouble, BadZipFile, zlib.error, OSError, EOFError, LookupError, ValueError, RuntimeError
"""The errors that damaged archives and JSON cause; NotImplementedError and RecursionError are RuntimeErrors."""

_INDEX_ENTRY, _LOCAL_HEADER, _ENCRYPTED, _STORED, _DEFLATED = b"PK\1\2", 30, 0x2041, 0, 8


def checked_archive(content: bytes) -> ZipFile:
    """Open an archive and check its index. Raises SourceTrouble."""
    if content.count(_INDEX_ENTRY) > MOST_FILES:  # zipfile makes an object of each.
        raise SourceTrouble(f"it has more than {MOST_FILES:,} files")
    most = min(MOST_UNPACKED, MIB + MOST_RATIO * len(content))
    archive, spelt, end, total = ZipFile(io.BytesIO(content)), dict[str, str](), 0, 0
    for each in sorted(archive.infolist(), key=lambda info: info.header_offset):
        problem, is_next = _problem(each, spelt), each.header_offset >= end and (end or not each.header_offset)
        end = each.header_offset + _LOCAL_HEADER + len(each.orig_filename) + each.compress_size
        total += each.file_size
        if not is_next or end > archive.start_dir or total > most:
            problem = problem or "overlaps other data, or makes the bundle too large when it is unpacked"
        if problem:
            raise SourceTrouble(f"'{each.orig_filename[:99]}' in it {problem}")
        each.file_size += 1  # Else zipfile cuts a file silently that is longer than its header says.
    return archive


def _problem(info: ZipInfo, spelt: dict[str, str]) -> str:
    """The problem of an entry, or ""; `spelt` collects the paths of earlier files and directories."""
    name, kind = info.orig_filename, stat.S_IFMT(info.external_attr >> 16)
    parts = name.removesuffix("/").split("/")
    ways = ["/".join(parts[: at + 1]) for at in range(min(len(parts), MOST_PARTS))]
    is_twice = ways[-1].casefold() in spelt and not name.endswith("/")
    if is_twice or [spelt.setdefault(way.casefold(), way) for way in ways] != ways:
        return "occurs twice, or differs from another only in case"
    if len(parts) > MOST_PARTS or len(spelt) > MOST_FILES:
        return f"is too deep, or more than the {MOST_FILES:,}th"
    if not name.isprintable() or "\\" in name or not {"", ".", ".."}.isdisjoint(parts):
        return "would leave its directory, or has hidden characters or a backslash in its name"
    if kind not in {0, stat.S_IFDIR if name.endswith("/") else stat.S_IFREG}:
        return "is a link or a device"
    is_readable = info.compress_type in {_STORED, _DEFLATED} and not info.flag_bits & _ENCRYPTED
    return "" if is_readable else "is encrypted, or not compressed by deflate"


def is_unpacked(archive: ZipFile, directory: Path) -> bool:
    """Whether a directory has exactly the files of a checked archive, byte for byte."""
    names = {name for name in archive.namelist() if not name.endswith("/")}
    found = {path: mode for path in directory.rglob("*") if not stat.S_ISDIR(mode := path.lstat().st_mode)}
    files = {str(path.relative_to(directory)) if stat.S_ISREG(mode) else "" for path, mode in found.items()}
    same = (_hash((directory / each).open("rb")) == _hash(archive.open(each)) for each in names)
    return not directory.is_symlink() and files == names and all(same)


def _hash(opened: Any) -> str:
    with opened as file:
        return file_digest(file, "sha256").hexdigest()


def unpack(archive: ZipFile, directory: Path) -> None:
    """Write a checked archive's files, read-only, all or none, replacing the directory."""
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".", dir=directory.parent) as beside:
        for each in (info for info in archive.infolist() if not info.orig_filename.endswith("/")):
            name, place = each.orig_filename, Path(beside, "new", each.orig_filename)
            place.parent.mkdir(parents=True, exist_ok=True)
            with whole(f"'{name[:99]}' in it"), archive.open(each) as source, place.open("xb") as target:
                copyfileobj(source, target)
                if target.tell() != each.file_size - 1:
                    raise BadZipFile("its size differs from its header")
            place.chmod(0o555 if each.external_attr >> 16 & 0o111 else 0o444)
        if directory.is_dir() and not directory.is_symlink():
            directory.chmod(0o700)
            directory.rename(Path(beside, "old"))
        Path(beside, "new").rename(directory)
    for path, _, _ in os.walk(directory):
        Path(path).chmod(0o555)


@contextmanager
def whole(what: str, kinds: tuple[type[Exception], ...] = DAMAGED) -> Iterator[None]:
    """Turn errors of these kinds into a SourceTrouble that begins with `what`."""
    try:
        yield
    except kinds as error:
        raise SourceTrouble(f"{what}: {visible(str(error))[:400]}") from None
