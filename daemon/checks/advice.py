"""Warnings about a configuration: what is unwise in it, though not wrong.

Files that will not be found, versions that are not pinned, containers that are given too much, servers without
a description, tools that are switched off in one place only.
"""

from __future__ import annotations

import os.path
import time
from typing import TYPE_CHECKING

import attrs

from daemon.checks import listening, programs, servers
from daemon.checks.findings import Level, found
from daemon.config.jsonc import ROOT, below
from daemon.config.listen import is_loopback, split_authority
from daemon.config.model import WRITTEN, TransportType
from daemon.config.names import matches, read_reference
from daemon.config.redaction import Redactors
from daemon.config.validate import unknown_servers, unreachable
from daemon.errors import Fault
from daemon.host import paths
from daemon.surfaces.table import shows_summaries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from daemon.config.model import Category, Config, Server
    from daemon.config.parse import CheckedConfig
    from daemon.model import ToolKey


def warnings(checked: CheckedConfig, path: Path, environ: Mapping[str, str]) -> list[Fault]:
    """Everything that `mcpd check` warns of, each with its place in the file.

    Args:
        checked: the configuration.
        path: its file.
        environ: where PATH and HOME are taken from.
    """
    config = checked.config
    return checked.placed([*advice(config, environ, path.absolute().parent), *oversights(config)])


def advice(config: Config, environ: Mapping[str, str], beside: Path | None = None) -> list[Fault]:
    """Everything worth a warning, each at its place in the file.

    Args:
        config: the configuration to judge.
        environ: where PATH and HOME are taken from.
        beside: the configuration's directory, for paths that were meant to start there; None to skip those.
    """
    found: list[Fault] = [*_keyless(config, environ), *_http(config)]
    redactors = Redactors()
    redactors.learn(config)
    for name, each in config.mcp_servers.items():
        server, trail = each.written, below(below(ROOT, "mcpServers"), name)
        if not server.enabled:
            continue
        told: list[Fault] = []
        if server.command:
            told += (Fault(path=below(trail, "args"), message=message) for message in programs.unwise(each))
            if beside is not None and not server.cwd:
                told += _astray(server, trail, beside, paths.home(environ))
        known = {fault.path for fault in told}
        told += (fault for fault in _checked(each, trail, environ) if fault.path not in known)
        found += (attrs.evolve(fault, message=redactors.of(name)(fault.message)) for fault in told)
    return found


def missing_key(config: Config, environ: Mapping[str, str]) -> str | None:
    """The environment variable with the key for summaries, if it is wanted and not set; else None."""
    summaries = config.summaries
    if summaries is None or summaries.api_key_env is None or not shows_summaries(config):
        return None
    key = environ.get(summaries.api_key_env) or summaries.kept_key or ""
    return None if key.strip() else summaries.api_key_env


def _keyless(config: Config, environ: Mapping[str, str]) -> Iterator[Fault]:
    if variable := missing_key(config, environ):
        message = (
            f"the environment variable {variable} is not set in this shell; the daemon's environment may be"
            " another one. Where it is not set, no model is asked: set it where the daemon is started, or"
            " write it into the file env beside the configuration"
        )
        yield Fault(path=below(below(ROOT, "summaries"), "apiKeyEnv"), message=message)


def _http(config: Config) -> Iterator[Fault]:
    """What keeps clients over HTTP from coming in."""
    http = config.listen.http
    if http is None:
        return
    trail = below(below(ROOT, "listen"), "http")
    host, _ = split_authority(http.address)
    if host is not None and not is_loopback(host) and not http.hosts:
        finding = found("http-without-names")
        yield Fault(path=below(trail, "hosts"), message=f"{finding.what} {finding.do}")
    for finding in () if http.tls is None else listening.certificate(http.tls, time.time()):
        here = below(below(trail, "tls"), str(finding.data["key"]))
        yield Fault(path=here, message=f"{finding.what} {finding.do}".strip())


def _checked(server: Server, trail: str, environ: Mapping[str, str]) -> Iterator[Fault]:
    """What `mcpd doctor` says of its command or its url, without asking anybody."""
    if server.type is TransportType.STDIO:
        findings = programs.check(server, environ, environ)
    else:
        findings = servers.endpoint(server, connect=False)
    for finding in findings:
        if finding.level is not Level.NOTE:
            what = finding.what.removeprefix(f"{server.name}: ")
            words = " ".join(each for each in (what, finding.why, finding.do) if each)
            yield Fault(path=f"{trail}.{finding.data['key']}", message=words.removesuffix("."))


def _astray(server: Server, trail: str, beside: Path, home: Path) -> Iterator[Fault]:
    """Relative paths that lead nowhere from the home directory and were meant from the configuration's."""
    command = server.command or ""
    places = [(below(trail, "command"), command)] if "/" in command else []
    for at, word in enumerate(server.args):
        name, _, value = word.partition("=")
        places.append((below(below(trail, "args"), at), value if name.startswith("-") else word))
    for place, word in places:
        # Other arguments count as paths only if they are files: `serve` and `.` mean something else.
        meant = word.startswith(("./", "../")) or word == command or os.path.isfile(beside / word)  # noqa: PTH113
        elsewhere = word.startswith(("/", WRITTEN))
        if word and not elsewhere and meant and not os.path.exists(home / word):  # noqa: PTH110
            message = (
                f"'{word}' begins in the home directory, for there is no `cwd`, and is not there. Write its"
                ' absolute path, or "cwd": "." to begin beside this configuration'
            )
            yield Fault(path=place, message=message)


def oversights(config: Config) -> list[Fault]:
    """What a configuration leaves unsaid or undoes elsewhere, each at its place in the file."""
    return [*_undescribed(config), *_kept(config), *_still_offered(config), *_idle_rules(config)]


def _idle_rules(config: Config) -> Iterator[Fault]:
    """Rules of permission that no call ever comes to."""
    for name, profile in config.profiles.items():
        trail = below(below(below(ROOT, "profiles"), name), "permissions")
        yield from unknown_servers(profile.permissions, trail, config.mcp_servers)
        yield from unreachable(profile.permissions, trail)


def _undescribed(config: Config) -> Iterator[Fault]:
    """Servers and categories without a description, of which a model learns only what stands in for one."""
    described = {category.server for category in config.categories.values() if category.description}
    servers = [
        name
        for name, server in config.mcp_servers.items()
        if server.enabled and not server.description and name not in described
    ]
    categories = [name for name, category in config.categories.items() if not category.description]
    for section, names, instead in (
        ("mcpServers", servers, "the first sentence that a server says of itself, else the names of its tools"),
        ("categories", categories, "what its tools do, as far as a line holds that"),
    ):
        if names:
            trail, one = below(ROOT, section), "this server" if section == "mcpServers" else "this category"
            # One warning for all: a configuration that was just taken over describes none of them.
            which = f"{one} has" if len(names) == 1 else f"{_listed(names)} have"
            yield Fault(
                path=below(trail, names[0]) if len(names) == 1 else trail,
                message=f"{which} no 'description': a model that looks for something is shown {instead}, and"
                " before the first start the name alone. Say in a sentence what it is good for",
            )


def _kept(config: Config) -> Iterator[Fault]:
    """What servers that are known keep for their clients, or cannot bear, if their entries do not say so."""
    for name, server in config.mcp_servers.items():
        for finding in servers.sharing(server):
            here = f"{below(below(ROOT, 'mcpServers'), name)}.{finding.data['key']}"
            yield Fault(path=here, message=f"{finding.what} {finding.do}".removesuffix("."))


def _still_offered(config: Config) -> Iterator[Fault]:
    """Tools that one category switches off and another still offers."""
    servers = config.mcp_servers
    for category in config.categories.values():
        here = below(below(below(below(ROOT, "categories"), category.name), "tools"), "overrides")
        for name, override in category.tools.overrides.items():
            if override.enabled:
                continue
            key = _key(name, category, servers)
            server = servers.get(key[0])
            if server is not None and not server.enabled:
                continue
            others = [other.name for other in config.categories.values() if _offers(other, key, servers)]
            if others:
                yield Fault(
                    path=below(below(here, name), "enabled"),
                    message=f"this switches the tool off in this category only: {_listed(others)} still"
                    f" {'has' if len(others) == 1 else 'have'} it. If nobody is to call it, switch it off"
                    " there, too",
                )


def _key(name: str, category: Category, servers: Mapping[str, object]) -> ToolKey:
    reference = read_reference(name, servers)
    return reference.server or category.server or "", reference.tool


def _offers(category: Category, key: ToolKey, servers: Mapping[str, object]) -> bool:
    """Whether a category would offer a tool if its server listed it."""
    tools = category.tools
    off = (name for name, override in tools.overrides.items() if not override.enabled)
    if any(_key(name, category, servers) == key for name in off):
        return False
    if any(matches(pattern, *key) for pattern in tools.exclude_patterns):
        return False
    if any(_key(name, category, servers) == key for name in tools.include_names):
        return True
    is_drawn_from = category.server in {None, key[0]}
    if tools.include_patterns:
        return is_drawn_from and any(matches(pattern, *key) for pattern in tools.include_patterns)
    return is_drawn_from and not tools.include_names


def _listed(names: list[str]) -> str:
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
