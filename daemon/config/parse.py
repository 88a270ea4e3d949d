"""Turns a file into a `Config` or a list of all its faults, and plans the change to the next `Config`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import msgspec

from daemon.config import client_keys, config_files
from daemon.config.command_lines import runs_container, started
from daemon.config.config_files import EnvFile, ProfileFiles
from daemon.config.config_model import (
    WORKSPACE,
    Config,
    Profile,
    Server,
    Share,
    StartMode,
    TransportType,
)
from daemon.config.expand import HTTP_KEYS, References, Sources, read_file
from daemon.config.jsonc import ROOT, below, decode, outward, placed
from daemon.config.listen import DEFAULT_PROFILE, Tls
from daemon.config.lock_file import LOCK, identity_of
from daemon.config.names import SERVER_NAME
from daemon.config.sandbox_keys import SandboxWish, sandbox_in_force
from daemon.config.structure import AN_OBJECT, expected, keys, read
from daemon.config.translation import Normalized, normalized
from daemon.config.tuning import Restart
from daemon.config.validate import Named, check, eager_faults, infer_type, remarks
from daemon.errors import ConfigError, Fault
from daemon.kit.wording import MAX_QUOTED

FIXED = ("listen", "state", "limits", "search", "telemetry")
"""Keys that take effect only after a restart of the daemon."""

APPLIED = (
    *("audit", "autostart", "categories", "idle", "lazy", "lock", "metrics", "observe", "profiles"),
    *("registries", "sandbox", "summaries", "trust", "watch"),
)
"""Other keys, and the lock, which the daemon reads on each use: a change takes effect at once."""


class Plan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The steps of a reload. The first seven fields are disjoint, and in the new configuration's order."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    """Servers whose actors depend on a setting that has changed."""
    changed: tuple[str, ...] = ()
    """Servers whose description alone has changed; they keep running."""
    kept: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    needs_restart_of_daemon: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    """Faults of scripts and of the lock, as sentences; these files are left out."""


def plan(old: Config, new: Config) -> Plan:
    """Compare the present and a new configuration."""
    fates, problem = dict[str, list[str]](), new.lock.problem if new.lock is not None else ""
    for name, server in new.mcp_servers.items():
        fates.setdefault(_what_became(old.mcp_servers.get(name), server), []).append(name)
    return Plan(
        removed=tuple(name for name in old.mcp_servers if name not in new.mcp_servers),
        sections=_different(old, new, APPLIED),
        needs_restart_of_daemon=_different(old, new, FIXED),
        faults=(*map(str, new.script_faults), *([f"{LOCK}: {problem}"] if problem else ())),
        **{what: tuple(names) for what, names in fates.items()},
    )


def in_force(old: Config, new: Config) -> Config:
    """The new configuration with the old values of `FIXED`."""
    return attrs.evolve(new, **{key: getattr(old, key) for key in FIXED})


def _what_became(old: Server | None, new: Server) -> str:
    if old is None:
        return "added"
    if old.enabled != new.enabled:
        return "enabled" if new.enabled else "disabled"
    if new.enabled and _built_with(old) != _built_with(new):
        return "restarted"
    return "kept" if old == new else "changed"


def _built_with(server: Server) -> Server:
    """Remove the keys that a server's actor does not depend on; new keys count as needed by default."""
    plain = attrs.evolve(server, title="", description="", workspaces=(), trust=None, origin=None, identity="")
    return attrs.evolve(plain, substituted=frozenset(), credentials=frozenset())


def _different(old: Config, new: Config, keys: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(key for key in keys if getattr(old, key) != getattr(new, key))


def same(one: object, other: object) -> bool:
    """Whether two values are equal, with their keys in the same order."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(item, other[key]) for key, item in one.items())
    if attrs.has(kind):
        names = [field.name for field in attrs.fields(kind)]
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    return one == other


MAX_CONFIG = 4 * 1024 * 1024
"""Bytes of a configuration: room for hundreds of servers. A larger file is probably another one."""

FAULTY_SECONDS = 86400.0
"""Seconds between starts of a server whose entry is faulty, which only a reload can fix."""

Raw = dict[str, Any]


@attrs.frozen(kw_only=True)
class CheckedConfig:
    """A configuration without faults, with remarks on it."""

    config: Config
    notes: tuple[Fault, ...] = ()
    """Remarks on keys that were translated or that mcpd does not obey."""
    text: str = attrs.field(repr=False)
    normal: Normalized = attrs.field(repr=False)
    """Maps trails to those in the file."""

    def placed(self, faults: Iterable[Fault]) -> list[Fault]:
        """Give faults of the configuration their places in the file."""
        return placed(self.normal.written(faults), self.text)


def load(path: Path, environ: Mapping[str, str], surfaces: Collection[str] = ()) -> Config:
    """Read a configuration, `profiles.d` and `env`; a faulty entry becomes a server with `faults`.

    Without `surfaces`, the surfaces that profiles name are not checked. Raises ConfigError.
    """
    return _load(path, environ, surfaces, strict=False).config


def load_with_notes(path: Path, environ: Mapping[str, str], surfaces: Collection[str] = ()) -> CheckedConfig:
    """Like `load`, with remarks; here a faulty entry raises `ConfigError`, too."""
    return _load(path, environ, surfaces, strict=True)


def load_changed(
    path: Path, changed: Mapping[Path, str], environ: Mapping[str, str], surfaces: Collection[str] = ()
) -> Config:
    """Like `load`, but with the `changed` texts in place of these files. Raises ConfigError."""
    return _load(path, environ, surfaces, strict=False, changed=changed).config


def _load(
    path: Path,
    environ: Mapping[str, str],
    surfaces: Collection[str],
    *,
    strict: bool,
    changed: Mapping[Path, str] = MappingProxyType({}),
) -> CheckedConfig:
    source = str(path)
    text = changed[path] if path in changed else _text(path)
    variables, files = config_files.read_env_file_of(path), config_files.read_profiles(path)
    for file, text_of in changed.items():
        if file != path:
            files.put(file, text_of)
    sources = Sources(environ=environ, kept=variables.values, base=path.parent, read_file=read_file)
    read = _parse(text, source, sources, surfaces, files, variables, strict=strict)
    config = config_files.with_scripts(attrs.evolve(read.config, lock=config_files.read_lock(path)), path)
    if strict and config.script_faults:
        raise ConfigError(source, config.script_faults)
    return attrs.evolve(read, config=config)


def _text(path: Path) -> str:
    try:
        # Of a pipe that has a writer, as of a shell's <(...), what is written is waited for.
        return config_files.text_of(path, MAX_CONFIG, "configuration", ROOT, waits=True)
    except config_files.NoFile:
        raise ConfigError(str(path), [Fault(path=ROOT, message=_how_to_make_one(path))]) from None


def parse(
    text: str,
    *,
    source: str,
    environ: Mapping[str, str],
    surfaces: Collection[str] = (),
    read_file: Callable[[Path], str] = read_file,
) -> Config:
    """Read a configuration's text, without the files next to it; errors name `source`. Raises ConfigError."""
    sources = Sources(environ=environ, base=Path(source).parent, read_file=read_file)
    return _parse(text, source, sources, surfaces, ProfileFiles(), EnvFile()).config


def _parse(
    text: str,
    source: str,
    sources: Sources,
    surfaces: Collection[str],
    files: ProfileFiles,
    variables: EnvFile,
    *,
    strict: bool = True,
) -> CheckedConfig:
    raw, faults = decode(text, source=source)
    if not isinstance(raw, dict):
        raise ConfigError(source, placed([*faults, Fault(path=ROOT, message=expected(AN_OBJECT, raw))], text))
    faults += [*variables.faults, *files.faults, *files.duplicates(_names(raw, "profiles"), source)]
    if isinstance(raw.get("profiles", {}), dict):
        raw = {**raw, "profiles": {**files.profiles, **raw.get("profiles", {})}}
    normal = normalized(raw)
    config = _read_config(normal.sections, sources, faults)
    named = Named(
        servers=_names(normal.sections, "mcpServers"),
        categories=_names(normal.sections, "categories"),
        profiles=_names(normal.sections, "profiles"),
        surfaces=tuple(surfaces),
    )
    faults += check(config, named, faults)
    servers, others = _set_apart(config, normal, _once(faults))
    if others or (faults and strict):
        raise ConfigError(source, placed(files.placed(normal.written(_once(faults))), text))
    config = attrs.evolve(config, mcp_servers=servers)
    notes = (
        *variables.notes,
        *sorted(
            placed(files.placed([*normal.notes, *normal.written(remarks(config))]), text),
            key=lambda note: (note.line, note.column),
        ),
    )
    return CheckedConfig(config=config, notes=notes, text=text, normal=normal)


def _set_apart(
    config: Config, normal: Normalized, faults: list[Fault]
) -> tuple[dict[str, Server], list[Fault]]:
    if not faults:
        return dict(config.mcp_servers), []
    section = below(ROOT, "mcpServers")
    names = [name for name in _names(normal.sections, "mcpServers") if SERVER_NAME.fullmatch(name)]
    trails = {below(section, name): name for name in names}
    # Faults of the text itself name an entry where it is written.
    entries = [Fault(path=trail, message=name) for trail, name in trails.items()]
    trails |= {entry.path: entry.message for entry in normal.written(entries)}
    found: dict[str, list[Fault]] = {}
    others: list[Fault] = []
    for fault in faults:
        name = next((trails[trail] for trail in outward(fault.path) if trail in trails), None)
        (others if name is None else found.setdefault(name, [])).append(fault)
    servers = dict(config.mcp_servers)
    for name, its in found.items():
        servers[name] = _faulty(servers.get(name) or Server(name=name), its, normal)
    return {name: servers[name] for name in names if name in servers}, others


def _faulty(server: Server, faults: list[Fault], normal: Normalized) -> Server:
    """A server that fails at once on each start, for every client."""
    return attrs.evolve(
        server,
        faults=tuple(normal.written(faults)),
        url=None,
        share=Share.ALL,
        start=StartMode.EAGER,
        restart=Restart(parked=FAULTY_SECONDS),
    )


def _read_config(raw: Raw, sources: Sources, faults: list[Fault]) -> Config:
    of_http, others = References(sources, faults), References(sources, faults)
    written, listen, state = (raw.get(key) for key in ("mcpServers", "listen", "state"))
    entries = written if isinstance(written, dict) else {}
    references = {name: References(sources, faults, server=name) for name in entries}
    if entries:
        expanded = {name: _expanded(name, entry, references[name]) for name, entry in entries.items()}
        raw = {**raw, "mcpServers": expanded}
    if isinstance(listen, dict) and isinstance(listen.get("http"), dict):
        http = of_http.within(listen["http"], below(ROOT, "listen", "http"), HTTP_KEYS)
        raw = {**raw, "listen": {**listen, "http": http}}
    if isinstance(state, dict):
        # The password of a database comes from outside, as that of a server does; `state_url` redacts it.
        raw = {**raw, "state": others.within(state, below(ROOT, "state"), ("url",))}
    raw = others.within(raw, ROOT, ("sandbox", "telemetry"))
    raw = {key: value for key, value in raw.items() if not _is_elsewhere(key, value, faults)}
    config = _with_key(read(Config, raw, ROOT, faults) or Config(), sources)
    servers = {
        name: _finished(server, entries[name], references[name], sources.base, faults)
        for name, server in config.mcp_servers.items()
    }
    servers = {name: _confined(server, config.sandbox, faults) for name, server in servers.items()}
    profiles = {DEFAULT_PROFILE: Profile(name=DEFAULT_PROFILE), **config.profiles}
    if config.listen.http is not None:
        tls = config.listen.http.tls
        tls = tls and Tls(cert=_absolute(tls.cert, sources.base), key=_absolute(tls.key, sources.base))
        served = attrs.evolve(config.listen.http, tls=tls, substituted=frozenset(of_http.values))
        config = attrs.evolve(config, listen=attrs.evolve(config.listen, http=served))
    return attrs.evolve(config, mcp_servers=servers, profiles=profiles)


def _is_elsewhere(key: str, value: object, faults: list[Fault]) -> bool:
    """Whether a key is no part of the configuration: a schema's address, or a server, which is a fault here."""
    if key in keys(Config) or not isinstance(value, dict) or value.keys().isdisjoint({"command", "url"}):
        return key == "$schema"
    written = f'this is a server: write it within "mcpServers": {{"{key[:MAX_QUOTED]}": {{...}}}}'
    faults.append(Fault(path=below(ROOT, key), message=written))
    return True


def _with_key(config: Config, sources: Sources) -> Config:
    summaries = config.summaries
    if summaries is None or summaries.api_key_env is None:
        return config
    kept = sources.kept.get(summaries.api_key_env)
    return attrs.evolve(config, summaries=attrs.evolve(summaries, kept_key=kept))


def _expanded(name: str, entry: object, references: References) -> object:
    if not isinstance(entry, dict):
        return entry
    # A disabled server may refer to variables that are not set yet.
    if entry.get("enabled") is not False:
        trail = below(ROOT, "mcpServers", name)
        entry = references.with_env_file(references.within(entry, trail), trail)
    kind = entry.get("type", infer_type(entry))
    if isinstance(kind, str) and kind not in set(TransportType):
        kind = client_keys.table().types.get(kind, kind)
    return {**entry, "type": kind}


def _finished(server: Server, entry: Raw, references: References, base: Path, faults: list[Fault]) -> Server:
    if server.shared_by is not Share.ALL:
        faults += eager_faults(entry, below(ROOT, "mcpServers", server.name))
    auth = server.auth
    if auth is not None and auth.token_file:
        auth = attrs.evolve(auth, token_file=_absolute(auth.token_file, base))
    return attrs.evolve(
        server,
        cwd=server.cwd and _absolute(server.cwd, base),
        auth=auth,
        identity=identity_of(entry),
        substituted=frozenset(references.values),
        credentials=frozenset(references.credentials),
    )


def _confined(server: Server, default: SandboxWish, faults: list[Fault]) -> Server:
    if server.type is not TransportType.STDIO:
        return server
    wish, enabled = server.sandbox, server.sandbox_enabled
    if runs_container(server):
        if sandbox_in_force(wish, enabled=enabled) is not None:
            key, off = ("sandboxEnabled", "false") if enabled else ("sandbox", '"off"')
            text = f"mcpd confines no container, which is a sandbox of its own: remove this key, or write {off}"
            faults.append(Fault(path=below(ROOT, "mcpServers", server.name, key), message=text))
        return server
    programs = [words[0] for words in started((server.command or "", *server.args))]
    return attrs.evolve(server, confined=sandbox_in_force(wish, default, programs, enabled=enabled))


def _absolute(path: str, base: Path) -> str:
    # A path that begins with ~ is a fault, and the fault is about what was written. A workspace is absolute.
    return path if not path or path.startswith(("~", WORKSPACE)) else str(base.absolute() / path)


def _names(raw: Raw, section: str) -> tuple[str, ...]:
    value = raw.get(section)
    return tuple(value) if isinstance(value, dict) else ()


def _once(faults: list[Fault]) -> list[Fault]:
    return list(dict.fromkeys(faults))


def _how_to_make_one(path: Path) -> str:
    homeless = "" if os.environ.get("HOME") else "HOME is not set, so mcpd took / for it. "
    return (
        f"there is no such file. {homeless}mcpd looks for its configuration at --config or $MCPD_CONFIG, else "
        "$XDG_CONFIG_HOME/mcpd/mcpd.json (~/.config/mcpd/mcpd.json), else /etc/mcpd/mcpd.json. To begin, type "
        "`mcpd up`, which takes over the servers of your clients, or `mcpd add`; or write "
        f'{{"mcpServers": {{}}}} to {path.absolute()} and paste your servers into it'
    )
