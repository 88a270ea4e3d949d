"""`mcpd add` and `mcpd remove`: edit the configuration's servers, and wait for the effect."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from daemon.cli import adding_offers
from daemon.cli.command import UsageError, for_each, on_trial, trial_of
from daemon.cli.control import (
    EX_FAULT,
    STATUS_SECONDS,
    CommandFailed,
    DaemonUnreachable,
    RemoteFault,
    ask_with,
    note,
)
from daemon.cli.secret import given
from daemon.cli.taking_effect import edited_file, finish, reloaded, said_once, typed_as
from daemon.config.command_lines import Advice, Package, completed, packages_in, started
from daemon.config.expand import ENV_FILE, read_env
from daemon.config.parse import parse
from daemon.config.redaction import secrets_of
from daemon.config.translation import SERVERS
from daemon.documents.files import look
from daemon.errors import ConfigError
from daemon.host.paths import config_file, home
from daemon.kit.later import later
from daemon.kit.wording import short_size, suggestion
from daemon.safety.escape import visible
from daemon.sandbox.policy import DaemonPlaces
from daemon.setup.adding import WantedServer, named, newest, wanted, with_versions
from daemon.setup.drafts import KEYRING, Present, changed, in_keyring, known_values, read_present
from daemon.setup.moved_secrets import Variables, asked_as_variables, references, with_references
from daemon.sources.offers import ServerOffer

bundles = later("daemon.sources.bundles")  # loads an HTTP client


def add(options: argparse.Namespace) -> int:
    """Add a server to the configuration, and wait until it is up."""
    path = edited_file(options)
    present = read_present(path)
    values = known_values(present, os.environ, keyring_too=options.keyring)
    variables = Variables(known=values, keyring=options.keyring)
    with ExitStack() as undo:
        try:
            options.env = [*_of_file(options), *options.env]
            server = _wanted(options, present, variables, undo)
            needed = references(server.entry) if options.words[-1:] == ["-"] else []
            missing = {each for each in needed if each not in variables.known}
            entry, known = _completed_entry(server, variables, path, missing)
        except ValueError as error:
            raise UsageError(visible(str(error))) from None
        for line in server.notes:
            note(line)
        name = server.name
        place = present.places.get(name, (SERVERS, name))
        draft = changed(present, lambda text: text.put(place, entry), variables.kept, os.environ, missing)
        if options.dry_run:
            print(visible(draft.diff(), lines=True), end="")
            return 0
        back = "" if name in present.servers else typed_as(options, "remove", name)

        def stays() -> None:
            if variables.kept:
                where = "the keyring (`mcpd secret`)" if draft.kept else f"{present.env.path}, for you only"
                note(f"kept in {where}: {', '.join(variables.kept)}")
            if not options.json:
                print(visible(f"added {name} to {path}{back and f'; undo: {back}'}"))
            for line in (*(each.written(name) for each in known), *said_once(draft)[-1:]):
                note(line)

        with nullcontext() if options.no_reload else on_trial(options, name, back):
            draft.write()
            undo.callback(draft.undo)
            made = undo.pop_all()
            if options.no_reload:
                stays()
            elif status := finish(options, name, path, made.close, tell=stays):
                return status
    return adding_offers.cleared(present, name, draft.config, runs=options.no_reload)


def _wanted(
    options: argparse.Namespace, present: Present, variables: Variables, undo: ExitStack
) -> WantedServer:
    """The server to add; one from a registry or bundle is agreed to. `undo` deletes an unpacked bundle."""
    offer = adding_offers.found(options, present, undo)
    if offer is None:
        server = wanted(options.words, options.rest, lambda: given("the entry"))
        server = attrs.evolve(server, entry=asked_as_variables(server.entry))
    else:
        server = attrs.evolve(offer, name=named([*options.words[:-1], offer.name][0]))
    server = _completed(options, server)
    if (name := server.name) in present.servers and not options.replace:
        instead = f"`mcpd remove {name}`, pass --replace, or write another name first"
        raise CommandFailed(
            f"there is a server '{name}' in {present.config.path}: {instead}; nothing was changed"
        )
    if isinstance(server, ServerOffer):
        return adding_offers.accepted(options, server, variables)
    return _pinned(server)


def _completed(options: argparse.Namespace, server: WantedServer) -> WantedServer:
    entry = {"description": options.description, "type": options.type, **server.entry}
    answers = {each.name for each in server.inputs} if isinstance(server, ServerOffer) else set()
    for key, typed_in in adding_offers.given(options).items():
        if isinstance(present_values := entry.get(key, {}), dict):
            entry[key] = present_values | {name: typed_in[name] for name in typed_in if name not in answers}
    more = {key: getattr(options, key) for key in ("description", "type", "share", "trust", "sandbox")}
    entry |= {key: value for key, value in more.items() if value}
    entry = {key: value for key, value in entry.items() if value not in ("", None, {}, [])}
    return attrs.evolve(server, entry=entry)


def _of_file(options: argparse.Namespace) -> Iterator[str]:
    """The variables in the file of `--env-file`, in the form of `--env`. Raises ValueError and McpdError."""
    file = options.env_file
    text = given("the variables") if file == Path("-") else look(file, foreign=True).text() if file else ""
    if text is None:
        raise CommandFailed(f"there is no {file}; nothing was changed")
    return (f"{name}={value}" for name, value in read_env(text).items())


def _pinned(server: WantedServer) -> WantedServer:
    server = with_versions(server, newest_version)
    for package in server.pinned.values():
        note(f"pinned to {package}, the newest version")
    for package in server.loose:
        note(f"warning: the version of '{package}' could not be looked up: it is not pinned")
    return server


def newest_version(package: Package) -> str | None:
    """The newest version of a package; None if no version is found."""
    return newest(package, os.environ, home(os.environ))


def _completed_entry(
    server: WantedServer, variables: Variables, path: Path, missing: Collection[str]
) -> tuple[dict[str, Any], tuple[Advice, ...]]:
    text = json.dumps({"mcpServers": {server.name: server.entry}})
    environ = {**dict.fromkeys(missing, "unset"), **variables.known}
    try:
        read = parse(text, source=str(path), environ=environ).mcp_servers[server.name]
    except ConfigError:  # the check of the whole file reports it
        return with_references(server.entry, server.name, frozenset(), variables), ()
    return completed(with_references(server.entry, server.name, secrets_of(read)[0], variables), read)


def configured(options: argparse.Namespace, name: str) -> tuple[Path, Present]:
    """The configuration's path and its files' content. Raises CommandFailed if they lack the server."""
    present = read_present(path := edited_file(options))
    if name not in present.servers:
        raise CommandFailed(f"there is no server '{name}' in {path}{suggestion(name, present.servers)}")
    return path, present


def remove(options: argparse.Namespace) -> int:
    """Remove all named servers from the configuration, or none of them, and have the daemon stop them."""
    for name in options.servers:
        configured(options, name)
    return for_each(options, options.servers, partial(_remove, options))


def _remove(options: argparse.Namespace, name: str) -> int:
    path, present = configured(options, name)
    draft = changed(present, lambda text: text.remove(present.places[name]), {}, os.environ)
    if options.dry_run:
        print(visible(draft.diff(), lines=True), end="")
        return 0
    draft.write()
    trial_of(name).unlink(missing_ok=True)
    print(visible(f"removed {name} from {path}"))
    entry = present.servers[name]
    used = [each for each in references(entry) if each in present.variables]
    used += [f"{KEYRING}{each}" for each in in_keyring(entry)]
    for line in spare(path, [each for each in used if f"${{{each}" not in draft.config]):
        note(line)
    if not options.no_reload:
        effect = reloaded(options, path, name)
        if effect.asked and effect.problem:
            note(effect.problem, lines=True)
            return EX_FAULT
        print(f"the daemon has stopped {name}" if effect.asked else "no daemon runs")
        for line in _left(own_directory(options, name), entry):
            note(line)
    return adding_offers.cleared(present, name, draft.config, runs=options.no_reload)


_CACHES = {"npm": "npm cache npx rm --force", "pypi": "uv cache clean {}", "docker": "docker rmi {}"}
"""Commands that delete a package from a cache that other programs use, too."""


def own_directory(options: argparse.Namespace, name: str) -> Path:
    """The directory of a sandboxed server: below the state directory if the daemon is a system unit."""
    with suppress(DaemonUnreachable, RemoteFault, KeyError):
        state = ask_with(options, "status", {}, timeout=STATUS_SECONDS)["daemon"]["stateDirectory"]
        if (servers := Path(state, "servers")).is_dir():
            return servers / name
    return Path(DaemonPlaces(environ=os.environ).data, name)


def _left(own: Path, entry: Any) -> Iterator[str]:
    """Delete the private caches of a stopped server; reports the deleted files and those that stay."""
    words = map(str, (entry.get("command"), *entry.get("args", ())) if isinstance(entry, dict) else ())
    if (caches := own / "caches").is_dir():  # it ran in a sandbox
        yield f"deleted its own caches, {short_size(bundles.delete(caches))}: {caches}"
    else:
        for each in (package for run in started([*words]) for package in packages_in(run)):
            if way := _CACHES.get(each.source):
                yield f"{each.name} stays in a cache that other programs share: `{way.format(each.name)}`"
    for empty in (own / "data", own):
        with suppress(OSError):
            empty.rmdir()
    if own.is_dir():
        yield f"its data stays: `rm -r {shlex.quote(str(own))}` deletes that"


def spare(path: Path, names: Iterable[str]) -> Iterator[str]:
    """A line about each stored variable or secret that the configuration no longer refers to."""
    for each in names:
        name = each.removeprefix(KEYRING)
        where = path.with_name(ENV_FILE) if each == name else "the keyring"
        yield f"{name}, which nothing else uses, stays in {where}: `{removal(path, name)}` deletes it"


def removal(path: Path, name: str) -> str:
    """The command that deletes a variable or secret of the configuration at `path`."""
    named = "" if path == config_file(os.environ).absolute() else f"MCPD_CONFIG={shlex.quote(str(path))} "
    return f"{named}mcpd secret remove {name}"
