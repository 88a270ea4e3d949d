"""Archives that are made to hurt are refused with a sentence that names the entry, and leave nothing behind."""

from __future__ import annotations

import io
import os
import stat
import zipfile
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.kit.wording import MIB
from daemon.sources import bundles
from daemon.sources.bundles import checked_archive, unpack, whole
from daemon.sources.offers import SourceTrouble
from tests.unit.cases import cases
from tests.unit.sources.packing import Entry, bundled, packed


def taken(content: bytes, directory: Path) -> Path:
    """Unpack as `bundles.taken` does."""
    made = directory / "bundles" / "one"
    with whole("refused"):
        unpack(checked_archive(content), made)
    return made


def refusal(content: bytes, directory: Path) -> str:
    """The sentence with which an archive is refused, of which nothing is left."""
    with pytest.raises(SourceTrouble) as raised:
        taken(content, directory)
    assert [*directory.rglob("*")] in ([], [directory / "bundles"])
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 500
    return str(raised.value)


@cases("entries", "told")
def test_an_archive_that_is_made_to_hurt_is_refused(
    entries: list[dict[str, Any]], told: str, tmp_path: Path
) -> None:
    assert told in refusal(bundled(*(Entry.read(each) for each in entries)), tmp_path)


def test_files_are_read_only_and_keep_that_they_are_programs(tmp_path: Path) -> None:
    run, empty = Entry("bin/run", b"1", mode=stat.S_IFREG | 0o4775), Entry("lib/", mode=stat.S_IFDIR | 0o777)
    script = Entry("lib/a.js", b"1" * 100_000, mode=stat.S_IFREG | 0o2666)
    made = taken(bundled(Entry("manifest.json", b"{}"), run, empty, script), tmp_path)
    modes = {each.name: oct(stat.S_IMODE(each.stat().st_mode)) for each in (made, *made.rglob("*"))}
    programs = dict.fromkeys(("one", "bin", "run", "lib"), "0o555")
    assert modes == {**programs, "manifest.json": "0o444", "a.js": "0o444"}
    assert (made / "lib" / "a.js").read_bytes() == b"1" * 100_000
    assert [*made.parent.iterdir()] == [made]
    assert stat.S_IMODE(made.parent.stat().st_mode) == 0o700


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "MOST_UNPACKED", 3 * MIB)
    parts = [Entry(f"{at}", os.urandom(MIB)) for at in range(4)]
    assert "'3' in it overlaps other data, or makes the bundle too large" in refusal(bundled(*parts), tmp_path)


def test_what_unpacks_to_hundreds_of_times_its_size_is_refused(tmp_path: Path) -> None:
    assert "'zeros' in it" in refusal(bundled(Entry("zeros", bytes(8 * MIB))), tmp_path)
    taken(bundled(Entry("zeros", bytes(8 * MIB)), Entry("code", os.urandom(60_000))), tmp_path)


@pytest.mark.parametrize("before", [b"#!/bin/sh\nexit\n", packed({"manifest.json": "{}"})])
def test_data_before_the_archive_are_refused(before: bytes, tmp_path: Path) -> None:
    assert "'a' in it overlaps other data" in refusal(before + bundled(Entry("a")), tmp_path)
    assert "'a' in it overlaps other data" in refusal(bundled(Entry("a"), before=before), tmp_path)


def test_a_signature_behind_the_archive_is_no_fault(tmp_path: Path) -> None:
    signature = b"MCPB_SIG_V1\x04\0\0\0\x30\x82\x01\x00MCPB_SIG_END"
    assert (taken(bundled(Entry("a", b"1")) + signature, tmp_path) / "a").read_bytes() == b"1"


def test_sizes_behind_the_data_are_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO()
    # A program that writes into a pipe knows a file's size only afterwards.
    monkeypatch.setattr(zipfile.ZipFile, "_seekable", property(lambda _: False, lambda *_: None), raising=False)
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", b"1" * 1000)
        archive.writestr("b", b"2" * 1000)
    monkeypatch.undo()
    assert stream.getvalue().count(b"PK\7\x08") == 2
    assert (taken(stream.getvalue(), tmp_path) / "b").read_bytes() == b"2" * 1000


def test_too_many_files_and_directories_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> NoReturn:
        raise AssertionError("an object for each")

    monkeypatch.setattr(bundles, "MOST_FILES", 10)
    ways = [Entry(f"{at}/b/c/d") for at in range(3)]
    assert "'2/b/c/d' in it is too deep, or more than the 10th" in refusal(bundled(*ways), tmp_path)
    monkeypatch.setattr(bundles, "ZipFile", never)
    assert "it has more than 10 files" in refusal(bundled(*[Entry(f"{at}") for at in range(11)]), tmp_path)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_unpacking_that_ends_early_leaves_nothing(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(source: io.BufferedReader, target: io.BufferedWriter) -> NoReturn:
        target.write(source.read(10))
        raise error

    monkeypatch.setattr(bundles, "copyfileobj", copy)
    with pytest.raises((SourceTrouble, KeyboardInterrupt)):
        taken(bundled(Entry("a", b"1" * 99)), tmp_path)
    assert [*(tmp_path / "bundles").iterdir()] == []


@pytest.mark.parametrize("fault", [ZeroDivisionError, AssertionError, TypeError, AttributeError])
def test_a_fault_of_ours_is_no_refusal(fault: type[Exception]) -> None:
    with pytest.raises(fault), whole("refused"):
        raise fault


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    for name in ("bundles", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "bundles" / "one").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SourceTrouble):
        taken(bundled(Entry("a", b"1")), tmp_path)
    assert [*(tmp_path / "elsewhere").iterdir()] == []


SOUND = bundled(
    Entry("manifest.json", b"{}"), Entry("a/b.js", b"a" * 500, mode=0o100755), Entry("c", b"x" * 99)
)


@given(
    st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, len(SOUND)),
)
@settings(max_examples=5 * settings().max_examples)
def test_damage_never_writes_elsewhere_nor_leaves_a_part(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], length: int
) -> None:
    damaged = bytearray(SOUND)
    for at, byte in changes:
        damaged[at] = byte
    for content in (bytes(damaged), SOUND[:length]):
        directory = tmp_path_factory.mktemp("damaged")
        try:
            made = taken(content, directory)
        except SourceTrouble:
            assert [*directory.rglob("*")] in ([], [directory / "bundles"])
        else:
            assert [*directory.iterdir(), *made.parent.iterdir()] == [made.parent, made]
