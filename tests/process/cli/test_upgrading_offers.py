"""`mcpd upgrade` of servers from a registry: what changes is shown, answers stay, bundles are exchanged."""

import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from daemon.cli.table import implementation
from daemon.sources import bundles
from tests.registries import LocalRegistry, registry
from tests.unit.cases import cases
from tests.unit.cli.conftest import Captured
from tests.unit.cli.users import Terminal
from tests.unit.sources.packing import manifest, packed

NAME = "io.example/thing"
NPM = """#!/bin/sh
case "$*" in
*dist.integrity) echo "sha512-$(echo "$2" | tr -dc 0-9)==" ;;
*--json*) echo '{"repository": {"type": "git", "url": "git+https://example.com/a/thing.git"}}' ;;
*) echo 9.9.9 ;;
esac
"""
SETTING = {"type": "string", "title": "K", "description": "k", "required": True}
SETTINGS = {"key": SETTING, "more": SETTING}


def document(version: str, *more: Any, variables: tuple[str, ...] = ("KEY",), **other: Any) -> dict[str, Any]:
    package = {"registryType": "npm", "identifier": "@a/thing", "version": version, "packageArguments": [*more]}
    package["environmentVariables"] = [{"name": each, "isRequired": True} for each in variables]
    return {"name": NAME, "version": version, "packages": [package], **other}


PLACE = {"type": "named", "name": "--place", "isRequired": True}


@attrs.frozen
class Home:
    """A home without a daemon, with a registry that publishes the first version."""

    directory: Path
    published: LocalRegistry
    capsys: Captured

    @property
    def config(self) -> Path:
        return self.directory / "mcpd.json"

    @property
    def entry(self) -> dict[str, Any]:
        entry: dict[str, Any] = json.loads(self.config.read_text())["mcpServers"]["thing"]
        return entry

    @property
    def unpacked(self) -> list[str]:
        return [str(path) for path in (self.directory / "mcpd" / "bundles").glob("*")]

    def edit(self, key: str, value: object) -> None:
        config = json.loads(self.config.read_text())
        config["mcpServers"]["thing"][key] = value
        self.config.write_text(json.dumps(config))

    def add(self, *words: str) -> None:
        words = (*words, "--env=KEY=mine", "--yes", "--sandbox=off", "--no-reload")
        assert implementation("add").main(["thing", f"registry:{NAME}", *words, f"--config={self.config}"]) == 0
        self.capsys.readouterr()

    def upgrade(self, *words: str) -> tuple[int, str]:
        status = implementation("upgrade").main(
            [*(words or ("thing",)), "--no-reload", f"--config={self.config}"]
        )
        return status, "".join(self.capsys.readouterr())

    def bundle(self, monkeypatch: pytest.MonkeyPatch, version: str, *words: str) -> None:
        """Publish a version that is a bundle."""
        words = ("${__dirname}/run.js", *words, "--key", "${user_config.key}")
        launch = {"command": "node", "args": [*words]}
        text = json.dumps(manifest(user_config=SETTINGS, mcp_config=launch, version=version))
        content = packed({"manifest.json": text, "run.js": ""})
        monkeypatch.setattr(bundles, "fetch", lambda *_, **__: content)
        digest = hashlib.sha256(content).hexdigest()
        package = {"registryType": "mcpb", "identifier": "https://example.com/x.mcpb", "fileSha256": digest}
        self.published.documents.append({**document(version), "packages": [package]})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> Iterator[Home]:
    for name in ("npm", "npx"):
        (tmp_path / name).write_text(NPM)
        (tmp_path / name).chmod(0o755)
    for name, value in {"HOME": "", "XDG_DATA_HOME": "", "XDG_CACHE_HOME": "cache", "PATH": ""}.items():
        monkeypatch.setenv(name, f"{tmp_path / value}{':/usr/bin:/bin' if name == 'PATH' else ''}")
    monkeypatch.setattr("sys.stdin", None)
    with registry([document("1.0.0", PLACE)]) as published:
        made = Home(tmp_path, published, capsys)
        made.config.write_text(json.dumps({"registries": [published.url], "mcpServers": {}}))
        made.config.chmod(0o600)
        yield made


def test_what_was_shown_is_added_and_nothing_else(here: Home) -> None:
    answers = ("--env=KEY=mine", "--env=place=/here")
    words = (f"registry:{NAME}", *answers, "--sandbox=off", "--no-reload", f"--config={here.config}")
    assert implementation("add").main([*words, "--dry-run"]) == 0
    said = "".join(here.capsys.readouterr())
    shown = said.partition("mcpd: `--shown ")[2].partition("`")[0]
    first = here.published.documents[:]
    here.published.documents[:] = [document("1.0.0", PLACE, {"type": "positional", "value": "--evil"})]
    assert implementation("add").main([*words, "--yes", "--shown", shown]) == 1
    said = "".join(here.capsys.readouterr())
    assert f"{NAME} differs from the shown one: now version 1.0.0, hash sha512-" in said
    assert "thing" not in json.loads(here.config.read_text())["mcpServers"]
    here.published.documents[:] = first
    assert implementation("add").main([*words, "--yes", "--shown", shown]) == 0
    assert here.entry["args"] == ["-y", "@a/thing@1.0.0", "--place", "/here"]


def test_the_newest_version_is_written_with_its_hash_and_what_was_answered_stays(here: Home) -> None:
    here.add("--env=place=/here")
    entry = here.entry
    assert (entry["args"], entry["env"]) == (
        ["-y", "@a/thing@1.0.0", "--place", "/here"],
        {"KEY": "${THING__KEY}"},
    )
    here.published.documents.append(document("1.1.0", PLACE, websiteUrl="https://example.com/thing"))
    status, said = here.upgrade("thing", "--dry-run")
    assert (status, "+" in said, here.entry) == (0, True, entry), said
    status, said = here.upgrade("--all", "--dry-run", "--json")
    told = json.JSONDecoder().raw_decode(said, said.index("{\n"))[0]
    becomes = [[f"{NAME} 1.0.0", f"{NAME} 1.1.0"]]
    assert told == {"servers": {"thing": {"becomes": becomes, "changes": ""}}}, said
    status, said = here.upgrade()
    assert status == 0, said
    for line in (
        "thing: @a/thing@1.0.0 becomes @a/thing@1.1.0",
        f"thing: {entry['origin']['hash']} becomes {here.entry['origin']['hash']}",
        f"thing: {NAME} 1.0.0 becomes {NAME} 1.1.0",
        "changes: https://example.com/thing",
    ):
        assert f"mcpd: {line}\n" in said, said
    origin = {**entry["origin"], "version": "1.1.0", "hash": here.entry["origin"]["hash"]}
    args = ["-y", "@a/thing@1.1.0", "--place", "/here"]
    assert here.entry == {**entry, "args": args, "origin": origin}


MODE = {"type": "named", "name": "--mode", "isRequired": True, "description": "How fast."}


def test_a_version_that_needs_more_asks_for_it_and_what_was_answered_stays(
    here: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.add("--env=place=/here")
    before = here.config.read_text()
    here.published.documents.append(document("1.1.0", PLACE, MODE, variables=("KEY", "MORE_TOKEN")))
    status, said = here.upgrade()
    assert (status, here.config.read_text()) == (1, before), said
    assert "mcpd: thing now needs mode: How fast.\n" in said
    told = f"`mcpd upgrade thing --env=MORE_TOKEN=... --env=mode=... --config {here.config}`"
    assert f"without a terminal, write {told}" in said
    assert here.upgrade("thing", "--env=MORE_TOKEN=t-83hd82", "--env=mode=fast")[0] == 0
    assert here.entry["args"] == ["-y", "@a/thing@1.1.0", "--place", "/here", "--mode", "fast"]
    assert here.entry["env"] == {"KEY": "${THING__KEY}", "MORE_TOKEN": "${THING__MORE_TOKEN}"}
    assert "THING__MORE_TOKEN=t-83hd82\n" in here.config.with_name("env").read_text()
    here.published.documents.append(document("1.2.0", PLACE, MODE, variables=("KEY", "MORE_TOKEN", "LAST")))
    monkeypatch.setattr("sys.stdin", Terminal("typed\n"))
    status, said = here.upgrade()
    assert (status, here.entry["env"]["LAST"]) == (0, "typed"), said
    assert here.entry["args"] == ["-y", "@a/thing@1.2.0", "--place", "/here", "--mode", "fast"]


ARGUMENTS: dict[str, dict[str, Any]] = {
    "place": PLACE,
    "place?": {**PLACE, "isRequired": False},
    "mode": MODE,
    "fixed": {"type": "named", "name": "--fixed", "value": "x"},
    "dirs": {"type": "named", "name": "--dir", "isRequired": True, "isRepeated": True},
    "first": {"type": "positional", "valueHint": "dir", "isRequired": True},
    "eleven": {
        "type": "positional",
        "value": "a".join(f"{{{each}}}" for each in "bcdefghijkl") + "!",
        "variables": {each: {"default": "z"} for each in "bcdefghijkl"},
    },
}


@cases("first", "given", "words", "newer", "is_known", "becomes", "says")
def test_the_users_own_words_stay_among_the_arguments_of_a_new_version(
    first: str,
    given: str,
    words: str | None,
    newer: str,
    is_known: bool,
    becomes: str | None,
    says: str,
    here: Home,
) -> None:
    here.published.documents[:] = [document("1.0.0", *map(ARGUMENTS.get, first.split()))]
    here.add(*given.split())
    if words is not None:
        here.edit("args", ["-y", "@a/thing@1.0.0", *words.split()])
    before = here.config.read_text()
    documents = here.published.documents[:] * is_known
    here.published.documents[:] = [*documents, document("1.1.0", *map(ARGUMENTS.get, newer.split()))]
    began = time.process_time()
    status, said = here.upgrade("thing", "--env=mode=fast")
    assert says in said
    assert time.process_time() - began < 3, "a registry's arguments can be matched in too many ways"
    if becomes is None:
        assert (status, here.config.read_text()) == (1, before)
    else:
        assert (status, here.entry["args"]) == (0, ["-y", "@a/thing@1.1.0", *becomes.split()]), said
    assert ("no longer has 1.0.0, so mcpd cannot tell whether 1.1.0 takes " in said) is not is_known


def test_a_secret_that_a_newer_version_needs_is_kept_apart(here: Home) -> None:
    here.add("--env=place=/here")
    newer = document("1.1.0", PLACE, variables=("KEY", "WORD"))
    newer["packages"][0]["environmentVariables"][1]["isSecret"] = True
    here.published.documents.append(newer)
    status, said = here.upgrade("thing", "--env=WORD=magic-83hd82")
    assert (status, "magic" in said, here.entry["env"]["WORD"]) == (0, False, "${THING__WORD}"), said
    assert "THING__WORD=magic-83hd82\n" in here.config.with_name("env").read_text()


def test_it_never_goes_down_and_does_not_follow_npm(here: Home) -> None:
    here.published.documents.append(document("1.1.0", PLACE))
    here.add("--env=place=/here")
    before = here.config.read_text()
    for newest in ("1.1.0", "1.1.0-rc.1"):
        here.published.documents[:] = [document(newest, PLACE)]
        status, said = here.upgrade()
        assert (status, here.config.read_text()) == (1, before)
        line = f"thing: {NAME} 1.1.0 stays: {here.published.url} has no newer version than {newest}"
        assert f"mcpd: {line}\n" in said


def test_a_bundle_of_a_registry_is_exchanged_and_one_of_a_file_is_named(
    here: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.bundle(monkeypatch, "2.0.0")
    here.add("--env=key=mine")
    (old,) = here.unpacked
    here.bundle(monkeypatch, "2.1.0")
    status, said = here.upgrade("thing", "--dry-run")
    assert (status, here.unpacked) == (0, [old]), said
    status, said = here.upgrade()
    new = here.entry["origin"]["bundle"]
    assert (status, here.entry["args"]) == (0, [f"{new}/run.js", "--key", "${THING__KEY}"]), said
    assert f"thing: {old} becomes {new}\n" in said
    # A daemon may run it: nothing was reloaded.
    assert f"chmod -R u+w {old} && rm -r {old}" in said
    assert sorted(here.unpacked) == sorted([old, new])
    here.bundle(monkeypatch, "2.2.0", "${user_config.more}")
    status, said = here.upgrade()
    assert (status, "more is needed" in said, here.entry["origin"]["bundle"]) == (1, True, new), said
    status, said = here.upgrade("thing", "--env=more=there")
    new = here.entry["origin"]["bundle"]
    assert (status, here.entry["args"]) == (0, [f"{new}/run.js", "there", "--key", "${THING__KEY}"]), said
    back = f"undo: `mcpd add thing registry:{NAME} --version 2.1.0 --replace --config {here.config}`"
    assert back in said
    origin = here.entry["origin"]
    del origin["registry"]
    here.edit("origin", origin)
    status, said = here.upgrade()
    assert (status, "`mcpd add thing FILE.mcpb --replace` puts a newer one in its place" in said) == (1, True)


def test_all_goes_on_after_one_that_fails(here: Home) -> None:
    here.add("--env=place=/here")
    config = json.loads(here.config.read_text())
    config["mcpServers"]["other"] = {"command": "npx", "args": ["@a/other@1.0.0"]}
    here.config.write_text(json.dumps(config))
    here.published.hostile = "down"
    status, said = here.upgrade("--all")
    assert (status, "answered HTTP 500" in said) == (1, True), said
    assert "other: @a/other@1.0.0 becomes @a/other@9.9.9" in said
    assert "mcpd: changes: https://example.com/a/thing\n" in said
