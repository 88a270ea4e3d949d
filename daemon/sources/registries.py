"""Asks MCP registries (API v0.1) for servers, and turns a server.json (schema 2025-12-11) into an offer.

A registry may lie, be slow or never end: pages, bytes and seconds are limited, and every member is checked
(`published.toml`). Words of a document reach the package, but never the program that fetches and starts it.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

import attrs
import jsonschema_rs

from daemon.config.command_lines import packages_in
from daemon.config.config_model import Config, EntryOrigin
from daemon.config.hosts import ANY, LOCAL, HostRules
from daemon.config.parse import load
from daemon.host.paths import xdg
from daemon.host.private_files import replace
from daemon.kit.wording import MIB
from daemon.setup.adding import hashes, short_name
from daemon.setup.moved_secrets import is_read_by_programs
from daemon.sources.bundles import taken
from daemon.sources.downloads import SECONDS, fetch
from daemon.sources.offers import INPUT, Input, ServerOffer, SourceTrouble, as_text, prose

OFFICIAL = "https://registry.modelcontextprotocol.io"

PAGE, MAX_PAGES, MOST_PAGE, MAX_WORDS = 100, 20, 8 * MIB, 3
"""Servers of a page, the most that the official registry gives; pages read for a word; bytes of a page; words
that a registry is asked for."""

MOST_KEPT, MOST_CACHE, LAST_SECONDS = 500, 8 * MIB, 0.1
"""Most documents kept of a registry, the newest; characters of their file; seconds for a page once the time for
all pages has run out."""

MOST_WRONG, MOST_NOTES, MOST_HASHES = 150, 5, 4
"""Most characters of an error, reasons in one error, and hashes of a release."""

Document: TypeAlias = dict[str, Any]

_TABLE: Document = tomllib.loads((files("daemon.sources") / "published.toml").read_text(encoding="utf-8"))
_VALIDATORS = {
    kind: jsonschema_rs.validator_for({"$ref": f"#/$defs/{kind}", "$defs": _TABLE["schemas"]}, offline=True)
    for kind in _TABLE["schemas"]
}
_MEMBERS = {"description": "description", "default": "default", "required": "isRequired"}
_MEMBERS |= {"secret": "isSecret", "multiple": "isRepeated"}
"""The member of a server.json for each field of an `Input`."""

_VARIABLE = re.compile(r"\{([\w.-]+)\}", re.ASCII)
_PUBLIC = HostRules(allowed=(ANY,), denied=tuple(f"*{each}" for each in LOCAL))


def _checked(kind: str, value: Any) -> Any:
    """Return an answer, or a part of one, if it has the form of its kind. Raises SourceTrouble."""
    try:
        if isinstance(value, bytes):
            # Some registries write null for what there is not.
            value = json.loads(value, object_hook=lambda of: {k: v for k, v in of.items() if v is not None})
        _VALIDATORS[kind].validate(value)
    except (ValueError, RecursionError) as error:
        at, why = ".".join(map(str, getattr(error, "instance_path", ()))), str(getattr(error, "message", error))
        raise SourceTrouble(f"its {kind} cannot be used: {at and f'{at}: '}{why[:MOST_WRONG]}") from None
    return value


def opened(config: Path, environ: Mapping[str, str], *, offline: bool = False) -> Registries:
    """The registries of a configuration, which may be missing. Raises ConfigError."""
    urls = (load(config, environ) if config.exists() else Config()).registries
    cache = xdg(environ, "XDG_CACHE_HOME", ".cache") / "mcpd" / "registry"
    return Registries(urls, cache, offline=offline)


@attrs.define
class Registries:
    """The registries in the order in which they are asked; the methods block."""

    urls: tuple[str, ...]
    cache: Path
    offline: bool = attrs.field(default=False, kw_only=True)
    """Whether to ask no registry, and use only stored documents."""
    notes: list[str] = attrs.field(factory=list, init=False)
    """Registries and documents that could not be read, with the reason, a line each."""

    def server(self, name: str, version: str | None = None) -> tuple[str, Document]:
        """The first registry with a server, and its newest (or `version`'s) server.json; else SourceTrouble."""
        if not _VALIDATORS["server"].is_valid({"name": name, "version": version or "latest"}):
            said = f"{name[:80]!r} {version or ''}".rstrip()
            raise SourceTrouble(f"{said} names no server: write io.github.OWNER/NAME")
        path = f"servers/{quote(name, safe='')}/versions/{quote(version or 'latest', safe='')}"

        def fits(each: Document) -> bool:
            return each["name"] == name and version in {None, each["version"]}

        for found in self._servers(fits, path):
            return found
        # That a registry lacks it is no trouble to tell.
        reasons = [each for each in self.notes if not each.endswith("HTTP 404")]
        why = "; ".join(reasons) or "`mcpd search --registry WORDS` finds names"
        raise SourceTrouble(f"no server {name} is known{f' in version {version}' if version else ''}: {why}")

    def search(self, words: Sequence[str], most: int) -> list[Document]:
        """Documents with all words in name or description, with their registries."""

        def fits(each: Document) -> bool:
            # Half of the names begin so, and a search for git would find them all.
            text = f"{each['name'].removeprefix('io.github.')} {each.get('description', '')}".lower()
            return all(word.lower() in text for word in words)

        found = dict[str, Document]()
        # A registry looks for one text, in names.
        asked = [{"search": word, "version": "latest", "limit": PAGE} for word in words[:MAX_WORDS]]
        for url, each in self._servers(fits, *(f"servers?{urlencode(query)}" for query in asked)):
            about = prose(each.get("description", ""))
            found.setdefault(each["name"], {**each, "description": about, "registry": url})
        return [*found.values()][:most]

    def _servers(self, fits: Callable[[Document], bool], *paths: str) -> Iterator[tuple[str, Document]]:
        """The fitting servers at some paths of each registry; `notes` gets registries that cannot be read."""
        for url in self.urls:
            try:
                for page in [self._kept(url)] if self.offline else _pages(url, paths):
                    wanted = [each for each in self._sound(url, page) if fits(each)]
                    self._keep(url, wanted)
                    yield from ((url, each) for each in wanted)
            except SourceTrouble as trouble:
                self.notes.append(f"{url}: {str(trouble).removeprefix(url).strip()}")

    def _sound(self, url: str, page: Iterable[Any]) -> Iterator[Document]:
        for each in page:
            try:
                yield _checked("server", each)
            except SourceTrouble as trouble:
                self.notes += [f"{url}: {trouble}"][: MOST_NOTES - len(self.notes)]

    def _file(self, url: str) -> Path:
        return self.cache / f"{hashlib.sha256(url.encode()).hexdigest()}.json"

    def _kept(self, url: str) -> list[Document]:
        """The stored documents of a registry, newest first; empty if the file cannot be read."""
        with suppress(OSError, SourceTrouble):
            return list(_checked("kept", self._file(url).read_bytes())["servers"])
        return []

    def _keep(self, url: str, documents: list[Document]) -> None:
        # Without a place for it, nothing is kept.
        with suppress(OSError, ValueError, RecursionError):
            self.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
            kept = [*documents, *(each for each in self._kept(url) if each not in documents)][:MOST_KEPT]
            while len(text := json.dumps({"servers": kept})) > MOST_CACHE:
                kept = kept[: len(kept) // 2]
            replace(self._file(url), text.encode())


def _pages(url: str, paths: Iterable[str]) -> Iterator[list[Document]]:
    until = time.monotonic() + SECONDS
    for path in paths:
        cursor = ""
        for _ in range(MAX_PAGES):
            place = f"{url.rstrip('/')}/v0.1/{path}" + (f"&cursor={quote(cursor, safe='')}" if cursor else "")
            seconds = max(LAST_SECONDS, until - time.monotonic())
            answer = _checked("answer", fetch(place, most=MOST_PAGE, private=url != OFFICIAL, seconds=seconds))
            yield [each.get("server", {}) for each in answer.get("servers", [answer])]
            if not (cursor := answer.get("metadata", {}).get("nextCursor", "")):
                break


def offer_of(server: Document, url: str, environ: Mapping[str, str], *, offline: bool = False) -> ServerOffer:
    """The offer for the first package that runs here, else for a remote server. Raises SourceTrouble.

    Unless `offline`, looks up a package's hashes where it is published.
    """
    name, version, reasons = _checked("server", server)["name"], server["version"], list[str]()
    remotes = sorted(server.get("remotes", ()), key=lambda each: each.get("type") == "sse")
    for way in (*server.get("packages", ()), *remotes):
        try:
            offer = _offer(server, way, environ, offline=offline)
        except SourceTrouble as trouble:
            reasons.append(str(trouble))
            continue
        origin = attrs.evolve(offer.origin, registry=url, name=name, version=version)
        return attrs.evolve(offer, origin=origin, notes=(*reasons[:MOST_NOTES], *offer.notes))
    why = "; ".join(reasons[:MOST_NOTES]) or "it names neither a package nor a remote address"
    raise SourceTrouble(f"{name} {version} cannot be used here: {why}")


def _offer(server: Document, way: Document, environ: Mapping[str, str], *, offline: bool) -> ServerOffer:
    """The offer for one package or remote of a server. Raises SourceTrouble."""
    if way.get("registryType") == "mcpb" and not offline:
        return taken(_checked("mcpb", way)["identifier"], environ=environ, sha256=way["fileSha256"])
    making = _Making(environ)
    entry = making.run(way) if "registryType" in way else making.connect(way)
    words = [word for word in (entry.get("command", ""), *entry.get("args", ())) if isinstance(word, str)]
    fetched = [] if offline else [each for each in packages_in(words) if each.version]
    found = [each for package in fetched for each in hashes(package, environ)]
    published = f"sha256:{way['fileSha256'].lower()}" if fetched and "fileSha256" in way else ""
    if published and published not in found:
        if any(each.startswith("sha256:") for each in found):
            raise SourceTrouble(f"no file of {' '.join(words)} has the published {published}")
        making.notes.append(f"no hash of its package could be compared with the published {published}")
    name, hashed = server["name"], " ".join(found[:MOST_HASHES]) or None
    return ServerOffer(
        name=short_name(re.sub(r".*\.(?=.*/)", "", name)),
        entry={"description": prose(server.get("description", "")), **entry},
        origin=EntryOrigin(name=name, version=server["version"], hash=hashed),
        inputs=tuple(making.inputs.values()),
        notes=tuple(making.notes),
    )


@attrs.define
class _Making:
    environ: Mapping[str, str]
    inputs: dict[str, Input] = attrs.field(factory=dict)
    notes: list[str] = attrs.field(factory=list)

    def run(self, package: Document) -> Document:
        kind = package["registryType"]
        if kind not in _TABLE["runners"]:
            raise SourceTrouble(f"mcpd runs no packages of {kind[:40]!r}{' offline' * (kind == 'mcpb')}")
        named, runners = _checked(kind, package)["identifier"], _TABLE["runners"][kind]
        if kind != "oci" or not re.search(r"[:@]", named):
            named += _TABLE["marks"][kind] + package["version"]
        wanted = [each for each in (package.get("runtimeHint"), *runners) if each in runners]
        here = [each for each in wanted if shutil.which(each, path=self.environ.get("PATH"))]
        if not here:
            raise SourceTrouble(f"its package {named} needs {' or '.join(runners)}: install that")
        runner, env, args = here[0], dict[str, str](), [*runners[here[0]]]
        for name, each in self._variables(package, runner):
            if is_read_by_programs(name) or not re.fullmatch(_TABLE["words"]["variable"], name):
                self.notes.append(f"left out, as {runner} might obey it: the variable {name[:80]!r}")
            else:
                env[name] = self._text(name, each)
                args += ["-e", name] if kind == "oci" else []
        args.append(named)
        for number, each in enumerate(package.get("packageArguments", ()), 1):
            option = each.get("name", "")
            said = self._text(each.get("valueHint") or option.lstrip("-") or f"argument-{number}", each)
            args.append([word for word in (as_text(option), said) if word])
        return {"command": runner, "args": args, "env": env}

    def _variables(self, package: Document, runner: str) -> Iterator[tuple[str, Document]]:
        """A package's variables, and those that an option of a container engine sets."""
        yield from ((each["name"], each) for each in package.get("environmentVariables", ()))
        for each in package.get("runtimeArguments", ()):
            option, written = each.get("name", ""), each.get("value", "")
            if package["registryType"] == "oci" and option in {"-e", "--env"}:
                name, mark, value = written.partition("=")
                yield name, {**each, "value": value} if mark else {"isRequired": True}
            elif (written := f"{option} {written}".strip()) not in _TABLE["words"]["implied"]:
                self.notes.append(f"left out, as {runner} would obey it: the argument {written[:80]!r}")

    def connect(self, remote: Document) -> Document:
        url = _checked("remote", remote)["url"]
        address = self._text("url", {"value": url, "variables": remote.get("variables", {})})
        usual = INPUT.sub(lambda found: self.inputs[found[1]].default or "x", address)
        host = re.match(r"https://([\w.-]+)(?::\d+)?(?:[/?]|\Z)", usual, re.ASCII)
        if host is None or _PUBLIC.verdict(host[1]).refusal:
            raise SourceTrouble(f"{usual[:80]!r} is not an https URL of a public host")
        headers = {each["name"]: self._text(each["name"], each) for each in remote.get("headers", ())}
        return {"type": "sse" if remote["type"] == "sse" else "http", "url": address, "headers": headers}

    def _text(self, name: str, value: Document) -> str:
        """The text of a value, with inputs in place of its variables or of the whole value."""
        if "value" in value:
            known = value.get("variables", {})
            fixed = {each: known[each]["value"] for each in known if "value" in known[each]}
            # Fixed ones only before the escaping: parts of a reference become one when they are together.
            text = _VARIABLE.sub(lambda found: fixed.get(found[1], found[0]), value["value"])
            asked = [each for each in _VARIABLE.findall(text) if each in known and each not in fixed]
            made = {each: self._text(each, known[each]) for each in asked}
            return _VARIABLE.sub(lambda found: made.get(found[1], found[0]), as_text(text))
        name = re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII)[:64]
        said = {each: value[member] for each, member in _MEMBERS.items() if member in value}
        # An answer may be a reference, which a choice from outside may not.
        choices = tuple(each for each in value.get("choices", ()) if "$" not in each)
        self.inputs.setdefault(name, Input(name=name, choices=choices, **said))
        return f"${{input:{name}}}"
