"""`mcpd add` and `remove`: edit the configuration's servers, and wait for the daemon's outcome."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import attrs

from daemon.cli.command import UsageError
from daemon.cli.control import CommandFailed, note
from daemon.cli.taking_effect import finish, reloaded, said_once
from daemon.config.command_lines import Advice, Package, completed
from daemon.config.parse import parse
from daemon.config.redaction import secrets_of
from daemon.config.translation import SERVERS
from daemon.errors import ConfigError
from daemon.host.paths import config_file, home
from daemon.kit.wording import suggestion
from daemon.safety.escape import visible
from daemon.setup.adding import WantedServer, WordsError, newest, pairs, wanted, with_versions
from daemon.setup.drafts import Present, changed, read_present
from daemon.setup.moved_secrets import Variables, references, with_references

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection
    from pathlib import Path


def add(options: argparse.Namespace) -> int:
    """Add a server, and wait until it is up."""
    try:
        server = _completed(options, wanted(options.words, options.rest))
    except WordsError as error:
        raise UsageError(visible(str(error))) from None
    path = (options.config or config_file(os.environ)).absolute()
    present, name = read_present(path), server.name
    if name in present.servers and not options.replace:
        instead = f"`mcpd remove {name}`, or --replace it"
        raise CommandFailed(f"there is a server '{name}' in {path}: {instead}; nothing was changed")
    variables = Variables(known={**present.variables, **os.environ})
    server = _pinned(server)
    entry, known = _completed_entry(server, variables, path)
    place = present.places.get(name, (SERVERS, name))
    draft = changed(present, lambda text: text.put(place, entry), variables.kept, os.environ)
    if options.dry_run:
        print(visible(draft.diff(), lines=True), end="")
        return 0
    draft.write()
    if variables.kept:
        note(f"kept in {present.env.path}, for you only: {', '.join(variables.kept)}")
    if not options.json:
        print(visible(f"added {name} to {path}"))
    for line in (*(f"{name} {each.written}" for each in known), *said_once(draft)[-1:]):
        note(line)
    return 0 if options.no_reload else finish(options, name, path, draft.undo)


def _completed(options: argparse.Namespace, server: WantedServer) -> WantedServer:
    entry = {"description": options.description, "type": options.type, **server.entry}
    entry |= {"env": pairs(options.env, "=", "key"), "headers": pairs(options.header, ":", "header")}
    entry |= {"share": options.share, "trust": options.trust}
    return attrs.evolve(server, entry={key: value for key, value in entry.items() if value})


def _pinned(server: WantedServer) -> WantedServer:
    server = with_versions(server, newest_version)
    for package in server.pinned:
        note(f"pinned to {package}, the newest version")
    for package in server.loose:
        note(f"warning: the version of '{package}' could not be looked up: it is not pinned")
    return server


def newest_version(package: Package) -> str | None:
    """A package's newest version, as `newest`."""
    return newest(package, os.environ, home(os.environ))


def _completed_entry(
    server: WantedServer, variables: Variables, path: Path
) -> tuple[dict[str, Any], tuple[Advice, ...]]:
    text = json.dumps({"mcpServers": {server.name: server.entry}})
    try:
        read = parse(text, source=str(path), environ=variables.known).mcp_servers[server.name]
    except ConfigError:  # the check of the whole file reports it
        return with_references(server.entry, server.name, frozenset(), variables), ()
    return completed(with_references(server.entry, server.name, secrets_of(read)[0], variables), read)


def configured(options: argparse.Namespace) -> tuple[str, Path, Present]:
    """The server that a command names, the configuration's path, and the present files."""
    name, path = options.server, (options.config or config_file(os.environ)).absolute()
    present = read_present(path)
    if name not in present.servers:
        raise CommandFailed(f"there is no server '{name}' in {path}{suggestion(name, present.servers)}")
    return name, path, present


def remove(options: argparse.Namespace) -> int:
    """Remove a server from the configuration, and have the daemon stop it."""
    name, path, present = configured(options)
    draft = changed(present, lambda text: text.remove(present.places[name]), {}, os.environ)
    if options.dry_run:
        print(visible(draft.diff(), lines=True), end="")
        return 0
    draft.write()
    print(visible(f"removed {name} from {path}"))
    used = [each for each in references(present.servers[name]) if each in present.variables]
    for line in spare(present, [each for each in used if f"${{{each}" not in draft.config]):
        note(line)
    if options.no_reload:
        return 0
    effect = reloaded(options, path)
    if effect.asked and effect.problem:
        raise CommandFailed(effect.problem)
    print(f"the daemon has stopped {name}" if effect.asked else "no daemon runs")
    return 0


def spare(present: Present, names: Collection[str]) -> list[str]:
    """A line about variables that nothing refers to any more."""
    return [f"{present.env.path} still holds what nothing else uses: {', '.join(names)}"] if names else []
