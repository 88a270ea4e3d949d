"""Bundles become offers: manifests of each version, what they ask for, and text that stays text."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.config.config_model import Server
from daemon.config.parse import parse
from daemon.kit.wording import MIB
from daemon.sources import bundles
from daemon.sources.bundles import checked_archive, unpack, whole
from daemon.sources.offers import Input, ServerOffer, SourceTrouble, filled, missing
from tests.unit.cases import cases
from tests.unit.checks.scenes import NOBODY, as_somebody_else
from tests.unit.sources.packing import Entry, bundled, manifest, packed
from tests.waiting import in_time

KEY = "sk-of-the-machine-and-of-no-bundle"


@attrs.frozen
class Taking:
    """Takes bundles, as `mcpd add` does."""

    directory: Path
    environ: dict[str, str]
    home: Path

    def __call__(self, written: Any, *names: str, **how: Any) -> ServerOffer:
        text = written if isinstance(written, str) else json.dumps(written)
        return self.file(packed({"manifest.json": text, **dict.fromkeys(names, "")}), **how)

    def file(self, content: bytes, **how: Any) -> ServerOffer:
        (self.directory / "some.mcpb").write_bytes(content)
        return bundles.taken(self.directory / "some.mcpb", environ=self.environ, **how)

    def remove(self, bundle: object, text: str = "{}") -> Path | None:
        return bundles.remove(str(bundle), self.environ, text)


@pytest.fixture
def take(tmp_path: Path) -> Taking:
    home = tmp_path / "home"
    home.mkdir()
    return Taking(tmp_path, {"HOME": str(home), "XDG_DATA_HOME": str(tmp_path / "data")}, home)


def bundle_of(offer: ServerOffer) -> Path:
    assert offer.origin.bundle is not None
    return Path(offer.origin.bundle)


def parsed(entry: Mapping[str, Any], environ: Mapping[str, str]) -> Server:
    """The server that mcpd would start."""
    text = json.dumps({"mcpServers": {"s": entry}})
    return parse(text, source="/c/mcpd.json", environ=environ).mcp_servers["s"]


@pytest.mark.parametrize("key", ["manifest_version", "dxt_version"])
@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3", "0.4"])
def test_a_server_is_offered_with_its_files_and_its_hash(key: str, version: str, take: Taking) -> None:
    written = {name: value for name, value in manifest().items() if name != "manifest_version"}
    offer = take({**written, key: version}, "server/index.js")
    digest = hashlib.sha256((take.directory / "some.mcpb").read_bytes()).hexdigest()
    directory = take.directory / "data" / "mcpd" / "bundles" / f"some-server-{digest[:32]}"
    origin = {"name": "Some Server", "version": "1.2.3", "hash": f"sha256:{digest}", "bundle": str(directory)}
    assert (offer.name, attrs.asdict(offer.origin)) == ("some-server", {"registry": None, **origin})
    assert filled(offer, {}) == {"command": "node", "args": [f"{directory}/server/index.js"]}
    assert (directory / "server" / "index.js").is_file()


@cases("server", "asked", "answers", "entry")
def test_an_entry_is_made_of_a_manifest_and_of_answers(
    server: dict[str, Any], asked: dict[str, Any], answers: dict[str, str], entry: dict[str, Any], take: Taking
) -> None:
    offer = take({**manifest(user_config=asked), "server": server}, "server/run", "server/main.py", "run")
    places = {"@at": str(bundle_of(offer)), "@home": str(take.home)}
    text = json.dumps(entry)
    for name, place in places.items():
        text = text.replace(name, place)
    made = filled(offer, answers)
    assert made == json.loads(text)
    assert not parsed({**made, "command": "x"}, {"HOME": "/h"}).faults


ASKED = {
    "key": {"type": "string", "title": "Key", "description": "Of it", "sensitive": True, "required": True},
    "at": {"type": "directory", "title": "At", "multiple": True, "default": ["${HOME}/a", "${DOCUMENTS}"]},
    "debug": {"type": "boolean", "title": "Debug", "default": False},
    "most": {"type": "number", "title": "Most", "default": 10},
    "file": {"type": "file", "title": "File", "default": "${HOME}"},
}


def test_what_a_bundle_asks_for_becomes_inputs(take: Taking) -> None:
    needs = {"runtimes": {"node": ">=16"}, "platforms": ["linux", "darwin"]}
    offer = take(manifest(user_config=ASKED, compatibility=needs))
    key, at, debug, most, file = offer.inputs
    home = take.home
    assert key == Input(name="key", description="Key: Of it", required=True, secret=True)
    assert at == Input(name="at", description="At", default=f"{home}/a:{home}/Documents", multiple=True)
    assert debug == Input(name="debug", description="Debug", default="false", choices=("true", "false"))
    assert (most.default, file) == ("10", Input(name="file", description="File", default=str(home)))
    assert missing(offer, {}) == [key]
    assert offer.notes == ("it needs node >=16",)


@cases("change", "told")
def test_a_manifest_that_does_not_fit_is_refused(change: Any, told: str, take: Taking) -> None:
    with pytest.raises(SourceTrouble, match=told):
        take({**manifest(), **change} if isinstance(change, dict) else change)
    assert not (take.directory / "data").exists()


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip", packed({"other": ""})])
def test_what_is_no_bundle_is_refused(content: bytes, take: Taking) -> None:
    with pytest.raises(SourceTrouble, match="the bundle is refused, and nothing is unpacked"):
        take.file(content)
    with pytest.raises(SourceTrouble, match="No such file"):
        bundles.taken(take.directory / "none.mcpb", environ=take.environ)


async def test_a_pipe_in_the_place_of_a_bundle_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "tool.mcpb")
    taken = partial(bundles.taken, pipe, environ={"HOME": str(tmp_path)})
    with pytest.raises(SourceTrouble, match="nothing is unpacked"):
        await in_time(trio.to_thread.run_sync(taken, abandon_on_cancel=True))


def test_another_hash_is_refused_and_the_right_one_is_not(take: Taking) -> None:
    content = packed({"manifest.json": json.dumps(manifest())})
    digest = hashlib.sha256(content).hexdigest()
    with pytest.raises(SourceTrouble, match=f"its SHA-256 is {digest}, not {'0' * 64}"):
        take.file(content, sha256="0" * 64)
    assert not (take.directory / "data").exists()
    for spelling in (digest, digest.upper(), f"sha256:{digest}"):
        assert take.file(content, sha256=spelling).origin.hash == f"sha256:{digest}"


def test_a_url_is_fetched(take: Taking, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetch(url: str, **how: Any) -> bytes:
        asked.append((url, how["private"]))
        return packed({"manifest.json": json.dumps(manifest())})

    monkeypatch.setattr(bundles, "fetch", fetch)
    url = "https://example.com/some.mcpb"
    bundles.taken(url, environ=take.environ, private=True)
    bundles.taken(url, environ=take.environ)
    assert asked == [(url, True), (url, False)]


def test_a_bundle_is_removed_unless_another_entry_uses_it(take: Taking) -> None:
    offer = take(manifest(), "server/index.js", "server/lib/a.js")
    directory = bundle_of(offer)
    assert bundle_of(take(manifest(), "server/index.js", "server/lib/a.js")) == directory
    text = json.dumps({"mcpServers": {"other": filled(offer, {})}})
    others: list[object] = [None, {}, 3, "x", ["x"]]
    assert not any(bundles.remove(other, take.environ, "{}") for other in others)
    assert bundles.remove(offer.origin.bundle, take.environ, text) is None
    assert (directory / "server" / "index.js").is_file()
    assert bundles.remove(offer.origin.bundle, take.environ, "{}") == directory
    assert [*directory.parent.iterdir()] == []
    assert bundles.remove(offer.origin.bundle, take.environ, "{}") is None


def test_a_directory_that_was_unpacked_in_part_or_changed_is_unpacked_again(take: Taking) -> None:
    """One that is whole stays, for a server may run there."""
    content = packed({"manifest.json": json.dumps(manifest()), "server/index.js": ""})
    directory = bundle_of(take.file(content))
    was = directory.stat().st_ino
    assert bundle_of(take.file(content)).stat().st_ino == was
    # As a deletion that fails in the middle leaves the directory.
    for each in (directory, directory / "server"):
        each.chmod(0o700)
    (directory / "server" / "index.js").unlink()
    assert bundle_of(take.file(content)) == directory
    found = {str(path.relative_to(directory)): path for path in directory.rglob("*")}
    assert found.keys() == {"manifest.json", "server", "server/index.js"}
    assert (found["server/index.js"].stat().st_mode & 0o777, directory.stat().st_ino == was) == (0o444, False)
    assert [*directory.parent.iterdir()] == [directory]


def test_a_link_in_place_of_a_directory_is_no_unpacked_bundle(take: Taking) -> None:
    content = packed({"manifest.json": json.dumps(manifest()), "server/index.js": ""})
    directory = bundle_of(take.file(content))
    directory.rename(other := take.home / "other")
    directory.symlink_to(other)
    with pytest.raises(SourceTrouble):
        take.file(content)


@cases("written")
def test_nothing_but_a_bundle_is_removed(written: str, take: Taking) -> None:
    directory = bundle_of(take(manifest(), "server/index.js"))
    root = directory.parent
    for place in (root.parent / "kept-0123456789abcdef0123456789abcdef", root / "one"):
        place.mkdir()
    (root / "linked-0123456789abcdef0123456789abcdef").symlink_to(take.home)
    (take.home / "file").touch()
    before = sorted(take.directory.rglob("*"))
    assert take.remove(written.format(root=root, home=take.home, name=directory.name)) is None
    assert sorted(take.directory.rglob("*")) == before


def test_a_bundle_is_removed_by_whom_it_belongs_to_and_a_link_within_it_is_not_followed(
    take: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = bundle_of(take(manifest(), "server/index.js"))
    (take.home / "file").touch()
    directory.chmod(0o755)
    (directory / "link").symlink_to(take.home)
    monkeypatch.chdir(directory.parent)
    for each in (directory.parent, directory, directory / "server"):
        os.chown(each, -1 if os.geteuid() else NOBODY, -1)
    with as_somebody_else():  # who need not pass the directories of root's tests to a name alone
        bundles.delete(Path(directory.name))
    assert ([*directory.parent.iterdir()], (take.home / "file").exists()) == ([], True)


# Pieces of which references are made, in mcpd's spelling and in others'.
PIECES = st.sampled_from(
    [
        *("$", "{", "}", "${", "$$", ":", "-", "file:", "env:", "input:a", "KEY", "$KEY", "a", "~/", "/k"),
        *("run:", "${user_config.a}", "${user_config.b}", "${user_config.c}", "${HOME}", "${__dirname}"),
    ]
)
TEXTS = st.lists(PIECES, max_size=6).map("".join)


@given(st.lists(TEXTS, min_size=1, max_size=3), TEXTS, TEXTS, st.lists(TEXTS, max_size=3))
@settings(max_examples=4 * settings().max_examples)
def test_no_text_of_a_bundle_becomes_a_reference(
    args: list[str], first: str, second: str, several: list[str]
) -> None:
    asked: dict[str, Any] = {
        name: {"type": "string", "default": text} for name, text in {"a": first, "b": second}.items()
    }
    asked["c"] = {"type": "directory", "multiple": True, "default": several}
    written = manifest(user_config=asked, mcp_config={"command": "node", "args": args})
    entry = filled(bundles._offer(written, "0" * 64, {"HOME": "/h", "XDG_DATA_HOME": "/d"}, set()), {})
    entry["env"] = {f"X{at}": word for at, word in enumerate(entry.get("args", ()))}
    server = parsed(entry, {"KEY": KEY, "HOME": "/h"})
    assert not server.substituted
    assert KEY not in json.dumps([*server.args, *server.env.values()])


# --- archives ------------------------------------------------------------------------------------------------


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
    assert "'3' in it makes the bundle too large" in refusal(bundled(*parts), tmp_path)


def test_what_unpacks_to_hundreds_of_times_its_size_is_refused(tmp_path: Path) -> None:
    assert "'zeros' in it" in refusal(bundled(Entry("zeros", bytes(8 * MIB))), tmp_path)
    taken(bundled(Entry("zeros", bytes(8 * MIB)), Entry("code", os.urandom(60_000))), tmp_path)


def test_sizes_behind_the_data_and_a_signature_behind_the_archive_are_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, signature = io.BytesIO(), b"MCPB_SIG_V1\x04\0\0\0\x30\x82\x01\x00MCPB_SIG_END"
    # A program that writes into a pipe knows a file's size only afterwards.
    monkeypatch.setattr(zipfile.ZipFile, "_seekable", property(lambda _: False, lambda *_: None), raising=False)
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", b"1" * 1000)
        archive.writestr("b", b"2" * 1000)
    monkeypatch.undo()
    assert stream.getvalue().count(b"PK\7\x08") == 2
    assert (taken(stream.getvalue() + signature, tmp_path) / "b").read_bytes() == b"2" * 1000


def test_too_many_files_and_directories_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> NoReturn:
        raise AssertionError("an object for each")

    monkeypatch.setattr(bundles, "MOST_FILES", 10)
    ways = [Entry(f"{at}/b/c/d") for at in range(4)]
    assert "'3/b/c/d' in it makes the bundle too large" in refusal(bundled(*ways), tmp_path)
    monkeypatch.setattr(bundles, "ZipFile", never)
    assert "it has more than 10 files" in refusal(bundled(*[Entry(f"{at}") for at in range(11)]), tmp_path)


def test_many_files_in_one_deep_directory_are_counted_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    class Folder(PurePosixPath):
        hashed = 0

        def __hash__(self) -> int:
            Folder.hashed += 1
            return super().__hash__()

    monkeypatch.setattr(bundles, "PurePosixPath", Folder)
    checked_archive(bundled(*(Entry("a/" * 100 + f"{at}") for at in range(100))))
    assert Folder.hashed < 1000


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


def test_a_fault_of_ours_is_no_refusal() -> None:
    for fault in (ZeroDivisionError, AssertionError, TypeError, AttributeError):
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
