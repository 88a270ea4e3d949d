"""Warnings about a valid but unwise configuration, for `mcpd check` and `mcpd doctor`."""

from __future__ import annotations

import os.path
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs

from daemon.catalog.categories import resolve
from daemon.checks import addresses, entries
from daemon.checks.findings import Finding, Level, found
from daemon.config.config_model import WRITTEN, Category, Config, Server, TransportType
from daemon.config.jsonc import ROOT, below
from daemon.config.listen import is_loopback, split_authority
from daemon.config.lock_file import LOCK
from daemon.config.names import read_reference
from daemon.config.parse import CheckedConfig
from daemon.config.redaction import Redactors
from daemon.config.validate import unknown_servers, unreachable
from daemon.errors import Fault
from daemon.host import paths
from daemon.model import ToolKey
from daemon.secrets import keyring
from daemon.surfaces.code import CodeSurface
from daemon.surfaces.table import shows_summaries
from daemon.tracing.call_trace import missing

OF_COMMAND = "the environment of this command; a daemon that systemd starts has another"
"""Names the source of variables when no daemon's environment is known."""


def warnings(checked: CheckedConfig, path: Path, environ: Mapping[str, str]) -> list[Fault]:
    """All warnings of `mcpd check`, with their places in the file; `environ` has PATH and HOME."""
    config = checked.config
    unusable = [_fault(ROOT, finding) for finding in unusable_lock(config, path)]
    return checked.placed([*unusable, *advice(config, environ, path.absolute().parent), *oversights(config)])


def unusable_lock(config: Config, path: Path) -> Iterator[Finding]:
    """The finding on a lock next to the configuration that cannot be used; none for a sound one."""
    if config.lock is not None and config.lock.problem:
        yield found("lock-unusable", path=path.with_name(LOCK), problem=config.lock.problem)


def advice(config: Config, environ: Mapping[str, str], beside: Path | None = None) -> list[Fault]:
    """All warnings. `beside` is the configuration's directory; without it, relative paths are not checked."""
    lacks = (_fault(place, finding) for place, finding in lacking(config, environ, OF_COMMAND))
    faults = [*lacks, *_http(config)]
    redactors = Redactors()
    redactors.learn(config)
    for name, server in config.mcp_servers.items():
        if server.enabled:
            found, redact = _of_server(server, environ, beside), redactors.of(name)
            faults += (attrs.evolve(fault, message=redact(fault.message)) for fault in found)
    return faults


def _of_server(server: Server, environ: Mapping[str, str], beside: Path | None) -> Iterator[Fault]:
    """The warnings about one server, with the doctor's checks of command and URL that need no connection."""
    trail, known = below(ROOT, "mcpServers", server.name), set[str]()
    if server.written.command:
        pin = f". `mcpd pin {server.name}` writes the newest version"
        warned = [
            Fault(path=below(trail, "args"), message=message + pin * pins)
            for message, pins in entries.unwise(server)
        ]
        if beside is not None and not server.written.cwd:
            warned += _astray(server.written, trail, beside, paths.home(environ))
        yield from warned
        known = {fault.path for fault in warned}
    if server.type is TransportType.STDIO:
        findings = entries.command(server, environ, environ)
    else:
        findings = entries.endpoint(server, connect=False)
    for finding in findings:
        if finding.level is not Level.NOTE and (place := f"{trail}.{finding.key}") not in known:
            yield _fault(place, finding)


def _fault(path: str, finding: Finding) -> Fault:
    what = finding.what.removeprefix(f"{finding.data.get('server')}: ")
    return Fault(
        path=path, message=". ".join(each.removesuffix(".") for each in (what, finding.why, finding.do) if each)
    )


def missing_key(config: Config, environ: Mapping[str, str]) -> str | None:
    """The variable that should hold the key for summaries, if it is not set."""
    summaries = config.summaries
    if summaries is None or summaries.api_key_env is None or not shows_summaries(config):
        return None
    key = environ.get(summaries.api_key_env) or summaries.kept_key or ""
    return None if key.strip() else summaries.api_key_env


def lacking(config: Config, environ: Mapping[str, str], where: str) -> Iterator[tuple[str, Finding]]:
    """The configuration's unmet needs: a key and a finding for each."""
    if variable := missing_key(config, environ):
        finding = found("summaries-key-unset", variable=variable, where=where)
        yield below(ROOT, "summaries", "apiKeyEnv"), finding
    if missing(config.telemetry, environ):
        yield below(ROOT, "telemetry"), found("telemetry-not-installed")
    late = [(name, each) for name, server in config.mcp_servers.items() for each in server.late]
    wanted = [(name, each.partition(":")[2]) for name, each in late if each.startswith("keyring:")]
    with suppress(keyring.SecretTrouble):  # who cannot see the keyring learns it from the server's start
        for name, secret in [each for each in wanted if each[1] not in keyring.names(environ)]:
            yield f"{below(ROOT, 'mcpServers')}.{name}", found("secret-missing", server=name, secret=secret)
    scripts = any(each.run_code or each.surface == CodeSurface.name for each in config.profiles.values())
    if scripts and find_spec("pydantic_monty") is None:
        yield below(ROOT, "profiles"), found("interpreter-not-installed")


def _http(config: Config) -> Iterator[Fault]:
    http = config.listen.http
    if http is None:
        return
    trail = below(ROOT, "listen", "http")
    host, _ = split_authority(http.address)
    if host is not None and not is_loopback(host) and not http.hosts:
        yield _fault(below(trail, "hosts"), found("http-without-names"))
    for finding in () if http.tls is None else addresses.certificate(http.tls, time.time()):
        yield _fault(below(trail, "tls", finding.key), finding)


def _astray(server: Server, trail: str, beside: Path, home: Path) -> Iterator[Fault]:
    """Warn of relative paths that start at home, but were meant to start at the configuration."""
    command = server.command or ""
    places = [(below(trail, "command"), command)] if "/" in command else []
    for at, word in enumerate(server.args):
        name, _, value = word.partition("=")
        places.append((below(trail, "args", at), value if name.startswith("-") else word))
    for place, word in places:
        # Other arguments count as paths only if they are files: `serve` and `.` mean something else.
        meant = word.startswith(("./", "../")) or word == command or os.path.isfile(beside / word)  # noqa: PTH113
        elsewhere = word.startswith(("/", WRITTEN))
        if word and not elsewhere and meant and not os.path.exists(home / word):  # noqa: PTH110
            yield _fault(place, found("path-astray", server=server.name, word=word))


def oversights(config: Config) -> list[Fault]:
    """Omissions and contradictions, with their places in the file."""
    return [*_undescribed(config), *_kept(config), *_still_offered(config), *_idle_rules(config)]


def _idle_rules(config: Config) -> Iterator[Fault]:
    for name, profile in config.profiles.items():
        trail = below(ROOT, "profiles", name, "permissions")
        yield from unknown_servers(profile.permissions, trail, config.mcp_servers)
        yield from unreachable(profile.permissions, trail)


def _undescribed(config: Config) -> Iterator[Fault]:
    described = {category.server for category in config.categories.values() if category.description}
    servers = [
        name
        for name, server in config.mcp_servers.items()
        if server.enabled and not server.description and name not in described
    ]
    categories = [name for name, category in config.categories.items() if not category.description]
    instead = "the first sentence of the server's own description, else the names of its tools"
    yield from _without_words("mcpServers", "this server", servers, instead, "{} description")
    instead = "its tools' purposes, cut to a line"
    yield from _without_words("categories", "this category", categories, instead, ". categories.{}.description")


def _without_words(section: str, one: str, names: list[str], instead: str, key: str) -> Iterator[Fault]:
    """Warn once for all names: imported configurations have no descriptions."""
    if names:
        alone, trail = len(names) == 1, below(ROOT, section)
        which = f"{one} has" if alone else f"{_listed(names)} have"
        key = key.format(names[0] if alone else "NAME")
        finding = found("undescribed", which=which, instead=instead, key=key)
        yield _fault(below(trail, names[0]) if alone else trail, finding)


def _kept(config: Config) -> Iterator[Fault]:
    for name, server in config.mcp_servers.items():
        for finding in entries.sharing(server):
            yield _fault(f"{below(ROOT, 'mcpServers', name)}.{finding.key}", finding)


def _still_offered(config: Config) -> Iterator[Fault]:
    servers = config.mcp_servers
    for category in config.categories.values():
        here = below(ROOT, "categories", category.name, "tools", "overrides")
        for name, override in category.tools.overrides.items():
            if override.enabled:
                continue
            key = _key(name, category, servers)
            server = servers.get(key[0])
            if server is not None and not server.enabled:
                continue
            others = [other.name for other in config.categories.values() if _offers(other, key, servers)]
            if others:
                who = f"{_listed(others)} still {'has' if len(others) == 1 else 'have'}"
                yield _fault(below(here, name, "enabled"), found("still-offered", who=who))


def _key(name: str, category: Category, servers: Mapping[str, object]) -> ToolKey:
    reference = read_reference(name, servers)
    return reference.server or category.server or "", reference.tool


def _offers(category: Category, key: ToolKey, servers: Collection[str]) -> bool:
    # Of listed tools the names alone count.
    listed: dict[str, Any] = {name: {key[1]} if name == key[0] else () for name in {*servers, key[0]}}
    member = resolve(category, listed, {}).member(key)
    return member is not None and member.enabled


def _listed(names: list[str]) -> str:
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
