"""Archives that are made to hurt are refused with a sentence that names the entry, and leave nothing behind."""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.kit.wording import MIB
from daemon.sources import archives
from daemon.sources.archives import checked_archive, unpack, whole
from daemon.sources.offers import SourceTrouble
from tests.unit.sources.packing import Entry, bundled, packed

EVIL = b"#!/bin/sh\n"


def taken(content: bytes, directory: Path) -> None:
    """What `bundles.taken` does with an archive."""
    with whole("refused"):
        unpack(checked_archive(content), directory / "bundles" / "one")


def refusal(content: bytes, directory: Path) -> str:
    """The sentence with which an archive is refused, of which nothing is left."""
    with pytest.raises(SourceTrouble) as raised:
        taken(content, directory)
    assert [*directory.rglob("*")] in ([], [directory / "bundles"])
    text = str(raised.value)
    assert "\n" not in text
    assert text.isprintable()
    return text


def test_files_are_read_only_and_keep_that_they_are_programs(tmp_path: Path) -> None:
    entries = [
        Entry("manifest.json", b"{}"),
        Entry("bin/run", EVIL, mode=stat.S_IFREG | 0o4775),
        Entry("lib/", mode=stat.S_IFDIR | 0o777),
        Entry("lib/a.js", b"1" * 100_000, mode=stat.S_IFREG | 0o2666),
    ]
    taken(bundled(*entries), tmp_path)
    made = tmp_path / "bundles" / "one"
    modes = {str(each.relative_to(made)): oct(stat.S_IMODE(each.stat().st_mode)) for each in made.rglob("*")}
    assert modes == {
        "manifest.json": "0o444",
        "bin": "0o555",
        "bin/run": "0o555",
        "lib": "0o555",
        "lib/a.js": "0o444",
    }
    assert stat.S_IMODE(made.stat().st_mode) == 0o555
    assert (made / "lib" / "a.js").read_bytes() == b"1" * 100_000
    assert [*(tmp_path / "bundles").iterdir()] == [made]
    assert stat.S_IMODE((tmp_path / "bundles").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "name",
    [
        *(
            "/etc/passwd",
            "//x",
            "../x",
            "a/../../x",
            "a/..",
            "..",
            ".",
            "./a",
            "a/./b",
            "a//b",
            "/",
            "",
            "a/b/../c",
        ),
        *("..\\x", "a\\b", "C:\\x", "a\x00b", "a\nb", "a\x1b[2J", "a\u202eb", "a\u200bb", "a\x7f", "a\x85"),
    ],
)
def test_a_name_that_leads_elsewhere_or_hides_is_refused(name: str, tmp_path: Path) -> None:
    assert "would leave its directory" in refusal(bundled(Entry("ok"), Entry(name, EVIL)), tmp_path)


@pytest.mark.parametrize(
    "kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK, stat.S_IFDIR]
)
def test_an_entry_that_is_no_file_is_refused(kind: int, tmp_path: Path) -> None:
    said = refusal(bundled(Entry("ok"), Entry("a", b"/etc/shadow", mode=kind | 0o777)), tmp_path)
    assert "'a' in it is a link or a device" in said


def test_a_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    said = refusal(bundled(Entry("a/", b"/etc", mode=stat.S_IFLNK | 0o777), Entry("a/x")), tmp_path)
    assert "'a/' in it is a link or a device" in said


@pytest.mark.parametrize(
    "names",
    [
        ("a", "a"),
        ("a", "A"),
        ("a/b", "A/c"),
        ("straße", "STRASSE"),
        ("manifest.json", "Manifest.JSON"),
        ("a/b", "a"),
    ],
)
def test_a_name_that_is_there_twice_is_refused(names: tuple[str, str], tmp_path: Path) -> None:
    said = refusal(bundled(Entry(names[0], b"one"), Entry(names[1], b"two")), tmp_path)
    assert f"'{names[1]}' in it is there twice" in said


def test_a_file_that_is_a_directory_as_well_is_refused(tmp_path: Path) -> None:
    refusal(bundled(Entry("a", b"one"), Entry("a/b", b"two")), tmp_path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, 9, 93, 99])
def test_another_compression_is_refused(method: int, tmp_path: Path) -> None:
    assert "'a' in it is encrypted, or not compressed" in refusal(bundled(Entry("a", method=method)), tmp_path)


@pytest.mark.parametrize("flag", [0x1, 0x40, 0x2000])
def test_an_encrypted_entry_is_refused(flag: int, tmp_path: Path) -> None:
    assert "'a' in it is encrypted" in refusal(bundled(Entry("a", flags=flag)), tmp_path)


@pytest.mark.parametrize("method", [0, 8])
@pytest.mark.parametrize("real", [0, 99, 101, 200_000])
def test_a_file_of_another_size_than_its_header_says_is_refused(method: int, real: int, tmp_path: Path) -> None:
    entry = Entry("big", b"x" * real, size=100, checksum=zlib.crc32(b"x" * min(real, 100)), method=method)
    assert "'big' in it" in refusal(bundled(Entry("ok"), entry), tmp_path)


def test_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    assert "'a' in it" in refusal(bundled(Entry("a", b"abc", checksum=1)), tmp_path)


def test_a_broken_stream_is_refused(tmp_path: Path) -> None:
    assert "'a' in it" in refusal(bundled(Entry("a", b"abc", stream=b"\xff\xff\xff")), tmp_path)


def test_another_name_in_the_local_header_is_refused(tmp_path: Path) -> None:
    assert "'a' in it" in refusal(bundled(Entry("a", EVIL, local="../a")), tmp_path)


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_UNPACKED", 3 * MIB)
    parts = [Entry(f"{at}", os.urandom(MIB)) for at in range(4)]
    assert "'3' in it overlaps other data, or makes the bundle too large" in refusal(bundled(*parts), tmp_path)
    lies = [Entry("ok"), Entry("ten-gigabytes", b"x", size=10 << 30)]
    assert "'ten-gigabytes' in it" in refusal(bundled(*lies), tmp_path)


def test_what_unpacks_to_hundreds_of_times_its_size_is_refused(tmp_path: Path) -> None:
    zeros = bundled(Entry("zeros", bytes(8 * MIB)))
    assert len(zeros) < 10_000
    assert "'zeros' in it" in refusal(zeros, tmp_path)
    taken(bundled(Entry("zeros", bytes(8 * MIB)), Entry("code", os.urandom(60_000))), tmp_path)


def test_entries_that_share_their_data_are_refused(tmp_path: Path) -> None:
    shared = [Entry(f"{at}", at=0) for at in range(1, 4)]
    assert "'1' in it overlaps" in refusal(bundled(Entry("0", bytes(1000)), *shared), tmp_path)
    around = Entry("outer", b"", size=10, packed=36)
    assert "'inner' in it overlaps" in refusal(bundled(around, Entry("inner", b"x")), tmp_path)


def test_an_entry_that_reaches_into_the_index_is_refused(tmp_path: Path) -> None:
    assert "'a' in it overlaps" in refusal(bundled(Entry("a", b"x", packed=4000)), tmp_path)


@pytest.mark.parametrize("before", [b"#!/bin/sh\nexit\n", packed({"manifest.json": "{}"})])
def test_data_before_the_archive_are_refused(before: bytes, tmp_path: Path) -> None:
    assert "'a' in it overlaps other data" in refusal(before + bundled(Entry("a")), tmp_path)
    assert "'a' in it overlaps other data" in refusal(bundled(Entry("a"), before=before), tmp_path)


def test_a_signature_behind_the_archive_is_no_fault(tmp_path: Path) -> None:
    signature = b"MCPB_SIG_V1" + struct.pack("<L", 4) + b"\x30\x82\x01\x00" + b"MCPB_SIG_END"
    taken(bundled(Entry("a", b"1")) + signature, tmp_path)
    assert (tmp_path / "bundles" / "one" / "a").read_bytes() == b"1"


def test_sizes_behind_the_data_are_no_fault(tmp_path: Path) -> None:
    class Stream(io.RawIOBase):
        """A program that writes into a pipe knows a file's size only afterwards."""

        def __init__(self) -> None:
            self.written = bytearray()

        def write(self, data: Any, /) -> int:
            self.written += data
            return len(data)

    stream = Stream()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", b"1" * 1000)
        archive.writestr("b", b"2" * 1000)
    taken(bytes(stream.written), tmp_path)
    assert (tmp_path / "bundles" / "one" / "b").read_bytes() == b"2" * 1000


def test_too_many_files_and_directories_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_FILES", 10)
    assert "it has more than 10 files" in refusal(bundled(*[Entry(f"{at}") for at in range(11)]), tmp_path)
    ways = [Entry(f"{at}/b/c/d") for at in range(3)]
    assert "'2/b/c/d' in it is too deep, or more than the 10th" in refusal(bundled(*ways), tmp_path)
    assert "is too deep" in refusal(bundled(Entry("a/" * 64 + "b")), tmp_path)


def test_an_index_without_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a gigabyte of objects")

    content = bundled(*[Entry(f"{at}") for at in range(archives.MOST_FILES + 1)])
    monkeypatch.setattr(archives, "ZipFile", never)
    assert "it has more than 50,000 files" in refusal(content, tmp_path)


@pytest.mark.parametrize("name", ["a" * 256, "/".join(["a" * 250] * 20)])
def test_a_name_that_no_file_can_have_is_refused(name: str, tmp_path: Path) -> None:
    assert "File name too long" in refusal(bundled(Entry("ok"), Entry(name)), tmp_path)


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copy(source: io.BufferedReader, target: io.BufferedWriter) -> None:
        target.write(source.read(10))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archives, "copyfileobj", copy)
    assert "'a' in it: [Errno 28] No space left on device" in refusal(bundled(Entry("a", b"1" * 99)), tmp_path)


def test_an_interrupted_unpacking_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(archives, "copyfileobj", interrupt)
    with pytest.raises(KeyboardInterrupt):
        taken(bundled(Entry("a", b"1")), tmp_path)
    assert [*(tmp_path / "bundles").iterdir()] == []


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "bundles").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "bundles" / "one").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SourceTrouble):
        taken(bundled(Entry("a", b"1")), tmp_path)
    assert [*(tmp_path / "elsewhere").iterdir()] == []


SOUND = bundled(
    Entry("manifest.json", b"{}"),
    Entry("server/index.js", b"a" * 500, mode=stat.S_IFREG | 0o755),
    Entry("b", b"x" * 99),
)


@given(
    st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, len(SOUND)),
)
@settings(deadline=None, max_examples=500)
def test_damage_never_writes_elsewhere_nor_leaves_a_part(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], length: int
) -> None:
    damaged = bytearray(SOUND)
    for at, byte in changes:
        damaged[at] = byte
    for content in (bytes(damaged), SOUND[:length]):
        directory = tmp_path_factory.mktemp("damaged")
        try:
            taken(content, directory)
        except SourceTrouble:
            assert [*directory.rglob("*")] in ([], [directory / "bundles"])
        else:
            assert [*directory.iterdir()] == [directory / "bundles"]
            assert [*(directory / "bundles").iterdir()] == [directory / "bundles" / "one"]
