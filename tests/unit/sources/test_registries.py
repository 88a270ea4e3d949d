"""A published server becomes an entry that runs that server, whatever its document says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from daemon.config.config_model import EntryOrigin
from daemon.config.parse import parse
from daemon.sources import registries
from daemon.sources.offers import Input, ServerOffer, SourceTrouble, as_text, filled, missing
from daemon.sources.registries import offer_of
from tests.registries import documents_in
from tests.unit.cases import cases

URL = "https://registry.example.com"
PUBLISHED = documents_in(Path(__file__).parents[2] / "servers_published")
RUNNERS = ("npx", "bunx", "uvx", "pipx", "docker", "podman")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment with all runners."""
    for name in RUNNERS:
        (tmp_path / name).touch(mode=0o755)
    return {"PATH": str(tmp_path)}


def of(environ: dict[str, str], *packages: Any, remotes: Any = (), **more: Any) -> ServerOffer:
    document = {"name": "io.github.owner/mcp-server-example", "version": "1.0.0", "description": "Does things"}
    return offer_of(
        {**document, "packages": [*packages], "remotes": [*remotes], **more}, URL, environ, offline=True
    )


def command(offer: ServerOffer, **answers: str) -> list[str]:
    entry = filled(offer, answers)
    return [entry["command"], *entry["args"]]


@cases("package", "words")
def test_a_package_becomes_a_pinned_command(
    package: dict[str, Any], words: list[str], environ: dict[str, str]
) -> None:
    offer = of(environ, package)
    assert command(offer) == words
    assert not offer.notes


@cases("package", "why")
def test_a_package_that_could_be_another_is_refused(
    package: dict[str, Any], why: str, environ: dict[str, str]
) -> None:
    with pytest.raises(SourceTrouble) as raised:
        of(environ, package)
    assert why in str(raised.value)
    assert len(str(raised.value)) < 400


@cases("package", "told")
def test_what_a_runner_would_obey_is_left_out_and_told(
    package: dict[str, Any], told: str, environ: dict[str, str]
) -> None:
    offer = of(environ, package)
    entry = filled(offer, {})
    assert "evil" not in str(entry)
    assert not {"env", "headers"} & entry.keys()
    assert entry["args"][:-1] in (["-y"], [], ["run", "-i", "--rm"])
    (note,) = offer.notes
    assert note.startswith("left out, as ")
    assert note.endswith(told)


@cases("remote", "entry")
def test_a_remote_becomes_an_address_with_headers(remote: dict[str, Any], entry: dict[str, Any]) -> None:
    assert filled(of({}, remotes=[remote]), {}) == entry


@cases("remote")
def test_a_remote_that_is_not_public_is_refused(remote: dict[str, Any]) -> None:
    with pytest.raises(SourceTrouble, match="cannot be used"):
        of({}, remotes=[remote])


@cases("text", "default")
def test_nothing_of_a_document_becomes_a_reference(
    text: str, default: str | None, environ: dict[str, str]
) -> None:
    """Each place of the entry is read as the document's text, with the default put in."""
    value = {"name": "TEXT", "value": text}
    if default is not None:
        value |= {"variables": {"x": {"default": default, "choices": [default]}}}  # type: ignore[dict-item]
    package = {"registryType": "npm", "identifier": "a", "version": "1.2.3", "environmentVariables": [value]}
    offer = of(environ, {**package, "packageArguments": [{"name": text, "value": ""}, {**value, "name": ""}]})
    entry = filled(offer, {})
    known = {"HOME": "/home/user", "x": "a variable", "ABC": "a variable", "PATH": "a path"}
    server = parse(json.dumps({"mcpServers": {"a": entry}}), source="test", environ=known).mcp_servers["a"]
    # A mark of ours that a $ of the document stands before is text.
    wanted = text.replace("{x}", "${input:x}" if "${x}" in text else default or "")
    wanted = text if default is None else wanted
    assert (server.env["TEXT"], *server.args[-2:]) == (wanted, text, wanted)
    assert all("$" not in choice for each in offer.inputs for choice in each.choices)


@cases("text", "fixed", "said")
def test_parts_of_a_document_become_no_reference_together(text: str, fixed: dict[str, str], said: str) -> None:
    header = {"name": "X", "value": text, "variables": {name: {"value": fixed[name]} for name in fixed}}
    remote = {"type": "sse", "url": "https://mcp.example.com/", "headers": [header]}
    entry = {"mcpServers": {"a": filled(of({}, remotes=[remote]), {})}}
    server = parse(json.dumps(entry), source="test", environ={"ABC": "a variable"}).mcp_servers["a"]
    assert (server.headers, server.late) == ({"X": said}, ())


@cases("package", "inputs", "answers", "entry")
def test_a_package_asks_for_what_it_needs(
    package: dict[str, Any],
    inputs: list[dict[str, Any]],
    answers: dict[str, str],
    entry: dict[str, Any],
    environ: dict[str, str],
) -> None:
    offer = of(environ, package)
    assert [*offer.inputs] == [Input(**{**each, "choices": tuple(each.get("choices", ()))}) for each in inputs]
    made = filled(offer, answers)
    assert {key: made.get(key) for key in entry} == entry


def test_the_first_package_that_runs_here_is_taken_and_the_others_are_told(environ: dict[str, str]) -> None:
    npm = {"registryType": "npm", "identifier": "a", "version": "1.2.3"}
    pypi = {"registryType": "pypi", "identifier": "a", "version": "1.2.3"}
    remote = {"type": "sse", "url": "https://mcp.example.com/sse"}
    newer = {"type": "streamable-http", "url": "https://mcp.example.com/mcp"}
    (Path(environ["PATH"]) / "npx").unlink()
    (Path(environ["PATH"]) / "bunx").unlink()
    offer = of(environ, {"registryType": "nuget"}, npm, pypi, remotes=[remote, newer])
    assert command(offer)[0] == "uvx"
    assert "nuget" in offer.notes[0]
    assert offer.notes[1] == "its package a@1.2.3 needs npx or bunx: install that"
    assert of(environ, npm, remotes=[remote, newer]).entry["url"] == newer["url"]
    with pytest.raises(SourceTrouble, match="needs npx or bunx"):
        of(environ, npm)
    with pytest.raises(SourceTrouble, match="it names neither a package nor a remote address"):
        of(environ)


def test_the_hashes_of_what_is_fetched_are_noted(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = f"sha256:{'a' * 64}"
    image = {"registryType": "oci", "identifier": f"ghcr.io/example/server:1@{digest}"}
    document = {"name": "io.example/a", "version": "1.0.0", "packages": [image]}
    assert offer_of(document, URL, environ).origin.hash == digest
    asked: list[Any] = []

    def hashes(package: Any, environ: Any) -> tuple[str, ...]:
        asked.append((package.source, package.name, package.version))
        return tuple(f"sha256:{number}" for number in range(9))

    monkeypatch.setattr(registries, "hashes", hashes)
    wheel = {"registryType": "pypi", "identifier": "example", "version": "1.2.3"}
    found = offer_of({**document, "packages": [wheel]}, URL, environ).origin.hash
    assert (found, asked) == ("sha256:0 sha256:1 sha256:2 sha256:3", [("pypi", "example", "1.2.3")])
    assert offer_of({**document, "packages": [wheel]}, URL, environ, offline=True).origin.hash is None


@pytest.mark.parametrize(
    ("found", "notes", "refused"),
    [
        ((f"sha256:{'b' * 64}", f"sha256:{'a' * 64}"), 0, False),
        ((f"sha256:{'b' * 64}",), 0, True),
        (("sha512-bbbb",), 1, False),
        ((), 1, False),
    ],
)
def test_a_published_hash_of_a_package_is_compared_with_those_of_its_files(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, found: tuple[str, ...], notes: int, refused: bool
) -> None:
    monkeypatch.setattr(registries, "hashes", lambda _package, _environ: found)
    wheel = {"registryType": "pypi", "identifier": "example", "version": "1.2.3", "fileSha256": "A" * 64}
    document = {"name": "io.example/a", "version": "1.0.0", "packages": [wheel]}
    if refused:
        with pytest.raises(
            SourceTrouble, match=r"no file of uvx example==1\.2\.3 has the published sha256:aaaa"
        ):
            offer_of(document, URL, environ)
    else:
        assert len(offer_of(document, URL, environ).notes) == notes


def test_a_bundle_is_taken_with_the_hash_that_was_published(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def taken(url: str, **how: Any) -> ServerOffer:
        asked.append((url, how))
        origin = EntryOrigin(name="of-the-bundle", version="0", hash=f"sha256:{'a' * 64}", bundle="/bundles/x")
        return ServerOffer(name="bundle", entry={"command": "node"}, origin=origin, notes=("of the bundle",))

    monkeypatch.setattr(registries, "taken", taken)
    package = {"registryType": "mcpb", "identifier": "https://example.com/x.mcpb", "fileSha256": "a" * 64}
    document = {"name": "io.example/a", "version": "1.0.0", "packages": [{"registryType": "nuget"}, package]}
    offer = offer_of(document, URL, {})
    assert asked == [(package["identifier"], {"environ": {}, "sha256": "a" * 64})]
    assert offer.origin == EntryOrigin(
        registry=URL, name="io.example/a", version="1.0.0", hash=f"sha256:{'a' * 64}", bundle="/bundles/x"
    )
    assert len(offer.notes) == 2
    for wrong in ({}, {"fileSha256": None}, {"fileSha256": "b" * 63}, {"identifier": 3}):
        spoilt = {key: value for key, value in {**package, "fileSha256": "", **wrong}.items() if value}
        with pytest.raises(SourceTrouble, match="its mcpb cannot be used"):
            offer_of({**document, "packages": [spoilt]}, URL, {})
    assert len(asked) == 1


@pytest.mark.parametrize("document", PUBLISHED, ids=lambda document: document["name"])
def test_a_well_known_server_is_offered(document: dict[str, Any], environ: dict[str, str]) -> None:
    offer = offer_of(document, URL, environ, offline=True)
    origin = offer.origin
    assert (origin.registry, origin.name, origin.version) == (URL, document["name"], document["version"])
    entry = {"mcpServers": {"s": filled(offer, {each.name: "value" for each in missing(offer, {})})}}
    words = " ".join(parse(json.dumps(entry), source="test", environ={}).mcp_servers["s"].args)
    assert document["packages"][0]["identifier"] in words
    assert document["version"] in words


def test_servers_get_short_names(environ: dict[str, str]) -> None:
    package = {"registryType": "npm", "identifier": "a", "version": "1.2.3"}
    time, github = "io.github.modelcontextprotocol/mcp-server-time", "io.github.github/github-mcp-server"
    names = [of(environ, package, name=name).name for name in (time, github, "com.stripe/mcp")]
    assert names == ["time", "github", "stripe"]


def places(value: Any, trail: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, each in steps:
        yield (*trail, step)
        yield from places(each, (*trail, step))


@cases("wrong")
@pytest.mark.parametrize("document", PUBLISHED, ids=lambda document: document["name"])
def test_a_lie_in_any_field_is_refused_or_harmless(
    document: dict[str, Any], wrong: Any, environ: dict[str, str]
) -> None:
    everywhere = deepcopy(document)
    everywhere["remotes"] = [*everywhere.get("remotes", ()), *PUBLISHED[0]["remotes"]]
    for trail in places(everywhere):
        spoilt = deepcopy(everywhere)
        at = spoilt
        for step in trail[:-1]:
            at = at[step]
        at[trail[-1]] = wrong
        with suppress(SourceTrouble):
            offer = offer_of(spoilt, URL, environ, offline=True)
            entry = filled(offer, {each.name: "value" for each in missing(offer, {})})
            assert entry.get("command", "npx") in RUNNERS
            assert all(isinstance(word, str) for word in entry.get("args", ()))


def offer(*inputs: Input, **entry: Any) -> ServerOffer:
    return ServerOffer(name="s", entry=entry, origin=EntryOrigin(name="s", version="1"), inputs=inputs)


@cases("text", "default", "joined")
def test_a_reference_does_not_arise_where_texts_meet(text: str, default: str, joined: str) -> None:
    made = filled(offer(Input(name="x", default=default), args=[text], env={"A": text}), {})
    assert (made["args"], made["env"]) == ([joined], {"A": joined})


def test_a_reference_that_the_user_gives_is_one() -> None:
    made = filled(offer(Input(name="x"), headers={"Authorization": "Bearer ${input:x}"}), {"x": "${S__TOKEN}"})
    assert made["headers"] == {"Authorization": "Bearer ${S__TOKEN}"}


def test_an_input_of_several_values_becomes_several_arguments() -> None:
    each = offer(Input(name="x", multiple=True), args=["a", "${input:x}", "--in=${input:x}"])
    assert filled(each, {"x": "/b:/c"})["args"] == ["a", "/b", "/c", "--in=/b:/c"]
    assert filled(each, {"x": "${HOME:-/h}/b:~/c:${run:pass a:b}"})["args"][1:4] == [
        "${HOME:-/h}/b",
        "~/c",
        "${run:pass a:b}",
    ]
    assert filled(each, {})["args"] == ["a"]
    option = offer(Input(name="x", multiple=True), args=[["--in", "${input:x}"], ["--no-${input:x}"], []])
    assert filled(option, {"x": "/b:/c"})["args"] == ["--in", "/b", "--in", "/c", "--no-/b:/c"]
    assert "args" not in filled(option, {})


@cases("text", "escaped")
def test_a_reference_within_another_is_text_as_well(text: str, escaped: str) -> None:
    assert as_text(text) == escaped
