"""`mcpd add`, `pin` and `remove`: edit the configuration's servers, and wait for the daemon's outcome."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import attrs

from daemon.cli.command import UsageError
from daemon.cli.control import EX_FAULT, CommandFailed, ask_with, note
from daemon.cli.taking_effect import approve_rows, come_up, failure, in_lines, reloaded, said_once, with_names
from daemon.config.command_lines import Advice, Package, completed
from daemon.config.parse import parse
from daemon.config.redaction import secrets_of
from daemon.config.translation import SERVERS
from daemon.errors import ConfigError
from daemon.host.paths import config_file, home
from daemon.kit.wording import counted, suggestion
from daemon.safety.escape import document, visible
from daemon.setup.adding import WantedServer, WordsError, newest, pairs, wanted, with_versions
from daemon.setup.drafts import Draft, Present, changed, read_present
from daemon.setup.moved_secrets import Variables, references, with_references

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from daemon.documents.edited import EditedText


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
    return 0 if options.no_reload else _finish(options, name, path, draft)


def _completed(options: argparse.Namespace, server: WantedServer) -> WantedServer:
    entry = {"description": options.description, "type": options.type, **server.entry}
    entry |= {"env": pairs(options.env, "=", "key"), "headers": pairs(options.header, ":", "header")}
    entry |= {"share": options.share, "trust": options.trust}
    return attrs.evolve(server, entry={key: value for key, value in entry.items() if value})


def _pinned(server: WantedServer) -> WantedServer:
    server = with_versions(server, _newest)
    for package in server.pinned:
        note(f"pinned to {package}, the newest version")
    for package in server.loose:
        note(f"warning: the version of '{package}' could not be looked up: it is not pinned")
    return server


def _newest(package: Package) -> str | None:
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


def _finish(options: argparse.Namespace, name: str, path: Path, draft: Draft) -> int:
    """Wait for the server and report its state; undo the edit if the server cannot come up with it."""
    effect = come_up(options, path, name)
    seen, told = effect.seen, visible(effect.problem)
    undone = options.or_undo and effect.asked and not effect.is_well
    if seen is not None and not effect.is_well:
        told, is_wrong = failure(name, seen)
        undone = undone or (is_wrong and not options.keep)
    if undone:
        draft.undo()
        come_up(options, path, name)
    if options.json:
        state, why = (None, "") if seen is None else (seen["state"], seen["reason"])
        said = {
            "server": name,
            "state": state,
            "reason": why or effect.problem,
            "tools": list(effect.tools),
            "held": effect.held,
            "undone": undone,
        }
        print(document(said))
    elif effect.is_well:
        print(in_lines(name, effect))
        _approve(options, name, effect.held)
    elif not effect.asked:
        note(f"{name} was not tried: {told}. `mcpd start` starts a daemon", lines=True)
    else:
        after = f"it stays: `mcpd remove {name}` takes the server out"
        if undone:
            after = "taken back: the files are as they were; try again when that is mended, or with --keep"
        note(f"{told}\nmcpd: {after}", lines=True)
    return 0 if effect.is_well or not effect.asked else EX_FAULT


def _approve(options: argparse.Namespace, name: str, held: list[str]) -> None:
    """Show what of a server waits for approval, and approve it if the user agrees."""
    if not held:
        return
    waiting = ask_with(options, "approve", {"names": [name]})["waiting"]
    what = f"{name} lists {counted(len(waiting), 'definition')}, held until you approve:"
    print(with_names(what, [each["name"] for each in waiting]))
    if approve_rows(options, waiting) is None:
        print(f"`mcpd approve {name}` approves, `mcpd approve {name} --diff` shows more")


def pin(options: argparse.Namespace) -> int:
    """Write the newest version of what a server's command fetches, and wait until the server is up."""
    name, path, present = _configured(options)
    before = WantedServer(name=name, entry=present.servers[name])
    server = with_versions(before, _newest, images=True)
    for word in server.loose:
        how = "npm or uv looks for a package in its registry, an engine among the images that were pulled"
        note(f"{word} is not pinned, for no version was found: {how}")
    if not server.pinned:
        raise CommandFailed(f"{name}: nothing in its entry is left to pin, or can be; nothing was changed")
    words = zip(before.entry["args"], server.entry["args"], strict=True)
    becomes = {at: (was, now) for at, (was, now) in enumerate(words) if was != now}

    def write(text: EditedText) -> None:
        for at, (was, now) in becomes.items():
            text.put((*present.places[name], "args", at), now)
            note(f"{name}: {was} becomes {now}")

    draft = changed(present, write, {}, os.environ)
    if options.dry_run:
        print(visible(draft.diff(), lines=True), end="")
        return 0
    draft.write()
    return 0 if options.no_reload else _finish(options, name, path, draft)


def _configured(options: argparse.Namespace) -> tuple[str, Path, Present]:
    name, path = options.server, (options.config or config_file(os.environ)).absolute()
    present = read_present(path)
    if name not in present.servers:
        raise CommandFailed(f"there is no server '{name}' in {path}{suggestion(name, present.servers)}")
    return name, path, present


def remove(options: argparse.Namespace) -> int:
    """Remove a server from the configuration, and have the daemon stop it."""
    name, path, present = _configured(options)
    draft = changed(present, lambda text: text.remove(present.places[name]), {}, os.environ)
    if options.dry_run:
        print(visible(draft.diff(), lines=True), end="")
        return 0
    draft.write()
    print(visible(f"removed {name} from {path}"))
    used = [each for each in references(present.servers[name]) if each in present.variables]
    if spare := [each for each in used if f"${{{each}" not in draft.config]:
        note(f"{present.env.path} still holds what only this server used: {', '.join(spare)}")
    if options.no_reload:
        return 0
    effect = reloaded(options, path)
    if effect.asked and effect.problem:
        raise CommandFailed(effect.problem)
    print(f"the daemon has stopped {name}" if effect.asked else "no daemon runs")
    return 0
