"""Bundles become offers: manifests of each version, what they ask for, and text that stays text."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.config.config_model import Server
from daemon.config.parse import parse
from daemon.sources import bundles
from daemon.sources.offers import ServerOffer, SourceTrouble, filled, missing
from tests.unit.cases import cases
from tests.unit.checks.scenes import NOBODY, as_somebody_else
from tests.unit.sources.packing import manifest, packed

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
        return bundles.remove({"bundle": str(bundle)}, self.environ, text)


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
    directory = take.directory / "data" / "mcpd" / "bundles" / f"some-server-{digest[:12]}"
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
    assert (key.name, key.description, key.required, key.secret) == ("key", "Key: Of it", True, True)
    assert (at.default, at.multiple, at.required) == (f"{take.home}/a:{take.home}/Documents", True, False)
    assert (debug.default, debug.choices, most.default) == ("false", ("true", "false"), "10")
    assert (file.default, file.secret, file.multiple) == (str(take.home), False, False)
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


def test_a_pipe_in_the_place_of_a_bundle_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "tool.mcpb")
    with pytest.raises(SourceTrouble, match="nothing is unpacked"):
        bundles.taken(pipe, environ={"HOME": str(tmp_path)})


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
    assert bundles.remove(attrs.asdict(offer.origin), take.environ, text) is None
    assert (directory / "server" / "index.js").is_file()
    assert bundles.remove(attrs.asdict(offer.origin), take.environ, "{}") == directory
    assert [*directory.parent.iterdir()] == []
    assert bundles.remove(attrs.asdict(offer.origin), take.environ, "{}") is None


def _linked(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/null")


@pytest.mark.parametrize(
    "change",
    [
        lambda at: (at / "server" / "index.js").write_text("other"),
        lambda at: (at / "server" / "index.js").unlink(),
        lambda at: (at / "server" / "more.js").touch(),
        lambda at: (at / "server" / "more.js").symlink_to(at / "manifest.json"),
        lambda at: os.mkfifo(at / "server" / "more.js"),
        lambda at: (at / "server").rename(at / "other"),
        lambda at: _linked(at / "server" / "index.js"),
    ],
)
def test_a_directory_with_other_files_than_the_bundle_is_unpacked_again(
    change: Callable[[Path], object], take: Taking
) -> None:
    """Its name alone proves nothing; one that is sound stays, for a server may run there."""
    content = packed({"manifest.json": json.dumps(manifest()), "server/index.js": ""})
    directory = bundle_of(take.file(content))
    was = directory.stat().st_ino
    assert bundle_of(take.file(content)).stat().st_ino == was
    for each in (directory / "server", directory / "server" / "index.js"):
        each.chmod(0o700)
    change(directory)
    assert bundle_of(take.file(content)) == directory
    found = {str(path.relative_to(directory)): path for path in directory.rglob("*")}
    assert found.keys() == {"manifest.json", "server", "server/index.js"}
    assert found["server/index.js"].read_text() == ""
    assert (found["server/index.js"].stat().st_mode & 0o777, directory.stat().st_ino == was) == (0o444, False)
    assert [*directory.parent.iterdir()] == [directory]


@cases("written")
def test_nothing_but_a_bundle_is_removed(written: str, take: Taking) -> None:
    directory = bundle_of(take(manifest(), "server/index.js"))
    root = directory.parent
    for place in (root.parent / "kept-0123456789ab", root / "one"):
        place.mkdir()
    (root / "linked-0123456789ab").symlink_to(take.home)
    (take.home / "file").touch()
    before = sorted(take.directory.rglob("*"))
    assert take.remove(written.format(root=root, home=take.home, name=directory.name)) is None
    assert sorted(take.directory.rglob("*")) == before


@pytest.mark.parametrize("origin", [None, {}, {"bundle": None}, {"bundle": 3}, "x", ["x"]])
def test_an_entry_without_a_bundle_has_nothing_to_remove(origin: Any) -> None:
    assert bundles.remove(origin, {"HOME": "/h"}, "{}") is None


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
