"""Checks the configuration for faults, whether the daemon uses it, and who can read its secrets."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from daemon.checks.advice import OF_COMMAND, lacking, unusable_lock
from daemon.checks.findings import Finding, Running, Scene, found, is_same
from daemon.config.config_model import Config, Server
from daemon.config.jsonc import ROOT, below
from daemon.config.listen import HttpListen
from daemon.config.redaction import in_arguments, names_credential
from daemon.documents.files import DocumentError
from daemon.errors import ConfigError
from daemon.host import paths
from daemon.setup.clients.importing import ConfiguredServers, find
from daemon.setup.clients.installing import Records
from daemon.setup.clients.programs import OWN_NAME, PROGRAMS, Machine
from daemon.setup.clients.rules import held_rules, listed
from daemon.setup.drafts import read_present


def check(scene: Scene) -> Iterator[Finding]:
    """Findings on the configuration file."""
    for fault in scene.faults:
        if fault.variable is None:
            yield found("configuration-fault", fault=fault)
        else:
            yield found("variable-unset", fault=fault, where=_where(scene))
    for note in scene.notes:
        yield found("configuration-note", note=note)
    if scene.config is not None:
        servers, categories = len(scene.config.mcp_servers), len(scene.config.categories)
        yield found("configuration-sound", path=scene.path, servers=servers, categories=categories)
        if not servers and not scene.faults:
            yield found("no-servers")
        yield from unusable_lock(scene.config, scene.path)
        for _place, finding in lacking(scene.config, scene.inherited, _where(scene)):
            yield finding
    if scene.running is not None:
        yield from _of_the_daemon(scene, scene.running)


def secrets(scene: Scene) -> Iterator[Finding]:
    """Findings on secrets and programs that other users can read or replace."""
    try:
        status = scene.path.stat()
    except OSError:
        return
    literal = dict.fromkeys(_literals(scene.config)) if scene.config is not None else {}
    if literal:
        yield _readers(scene.path, status, ", ".join(literal))
    yield from _writers(scene.path, status, scene.running.uid if scene.running else None)
    if scene.config is not None:
        yield from _arguments(scene.config)


def _where(scene: Scene) -> str:
    if scene.running and scene.running.environ is not None:
        return f"the environment of the daemon, pid {scene.running.pid}"
    return OF_COMMAND


def _of_the_daemon(scene: Scene, running: Running) -> Iterator[Finding]:
    if not is_same(scene.path, running.config):
        yield found("configuration-of-daemon-differs", path=running.config)
    elif not is_same(scene.usual, running.config) and scene.usual.exists():
        yield found("configuration-named", usual=scene.usual)
    elif _newer(scene.path, running) and not (scene.config and scene.config.watch):
        yield found("configuration-changed")
    for name in running.status.get("unresolved") or ():
        yield found("tool-unresolved", name=name)


def _newer(path: Path, running: Running) -> bool:
    try:
        daemon = running.status["daemon"]
        return path.stat().st_mtime > float(daemon.get("configReadAt", daemon["startedAt"]))
    except OSError:
        return False


def _readers(path: Path, status: os.stat_result, places: str) -> Finding:
    if status.st_mode & stat.S_IROTH and _is_open(path):
        return found("secrets-open", path=path, places=places)
    if status.st_mode & stat.S_IRGRP:
        return found("secrets-open-to-group", path=path, places=places, gid=status.st_gid)
    return found("secrets-literal", path=path, places=places)


def _is_open(path: Path) -> bool:
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.absolute().parents)


def _writers(path: Path, status: os.stat_result, daemon: int | None) -> Iterator[Finding]:
    trusted = {0, os.geteuid(), daemon}
    if status.st_uid not in trusted:
        yield found("configuration-of-another-user", path=path, uid=status.st_uid)
    for each in (path, path.absolute().parent):
        mode = each.stat().st_mode
        sticky = stat.S_ISDIR(mode) and mode & stat.S_ISVTX
        # A user's own group, which many distributions create, has no other members. What every user can write
        # is not read at all (`config.config_files`).
        if mode & stat.S_IWGRP and not mode & stat.S_IWOTH and not sticky and each.stat().st_gid not in trusted:
            yield found("configuration-writable-by-group", path=each)


def _arguments(config: Config) -> Iterator[Finding]:
    servers = config.mcp_servers.items()
    exposed = [place for name, server in servers for place, _value in _in_arguments(server, _trail(name))]
    if exposed:
        yield found("secrets-in-arguments", places=", ".join(dict.fromkeys(exposed)))


def _literals(config: Config) -> Iterator[str]:
    for name, each in config.mcp_servers.items():
        server, trail = each.written, _trail(name)
        given = [
            (below(trail, key, variable), value)
            for key, values in (("env", server.env), ("headers", server.headers))
            for variable, value in values.items()
            if names_credential(variable)
        ]
        if server.url and _holds_secret(server.url):
            given.append((below(trail, "url"), server.url))
        given += _in_arguments(server, trail)
        yield from (place for place, value in given if _is_literal(value, server))
    if _holds_secret(config.state.url):
        yield below(ROOT, "state", "url")
    if (http := config.listen.http) is not None and http.tokens is not None:
        here = below(ROOT, "listen", "http", "tokens")
        if isinstance(http.tokens, str):
            given = [(here, http.tokens)]
        else:
            given = [(below(here, at, "value"), token.value) for at, token in enumerate(http.tokens)]
        yield from (place for place, value in given if _is_literal(value, http))


def _trail(name: str) -> str:
    return below(ROOT, "mcpServers", name)


def _is_literal(value: str, server: Server | HttpListen) -> bool:
    # References of a server that is switched off are not looked up, so they are still in the text.
    return bool(value) and "${" not in value and not any(part and part in value for part in server.substituted)


def _holds_secret(url: str | None) -> bool:
    if not url or "://" not in url:
        return False
    parts = urlsplit(url)
    names = (pair.partition("=")[0] for pair in parts.query.split("&"))
    return parts.password is not None or any(names_credential(name) for name in names)


def _in_arguments(server: Server, trail: str) -> list[tuple[str, str]]:
    return [(below(trail, "args", place), value) for place, value in in_arguments(server.args)]


def clients(scene: Scene) -> Iterator[Finding]:
    """Findings on clients whose model reaches all servers through one entry."""
    if scene.config is None:
        return
    machine = Machine(home=paths.home(scene.environ), directory=Path.cwd(), environ=scene.environ)
    try:
        present = read_present(scene.path)
    except DocumentError:  # another user's: that user's clients are meant
        return
    known = ConfiguredServers(servers=present.servers, variables={**present.variables, **scene.environ})
    own = find(machine, PROGRAMS.values()).own
    entries = [each for each in own if each.name == OWN_NAME]
    for program in dict.fromkeys(each.program for each in entries):
        apart = frozenset.intersection(*(each.left_out for each in entries if each.program is program))
        records = Records(scene.state)
        lookup = known.lookup(program, machine, records)
        try:
            _, rules = held_rules(program, machine, lookup, known.servers, records)
        except (ConfigError, DocumentError) as error:
            yield found("not-looked-at", place=program.title, problem=str(error).partition("\n")[0])
        else:
            if rules := [rule for rule in rules if not rule.servers <= apart]:
                yield found("client-rules-void", title=program.title, client=program.name, rules=listed(rules))
