"""From a text or a file to a `Config`, or to all of its faults at once; and from one `Config` to the next.

The steps: characters (jsonc), other clients' words (translation), references (expand), types (structure), rules
(validate). Each step continues with what the one before found sound, so that one run shows everything that is
wrong. A change touches a server only if what its actor was built with differs (`plan`). What the daemon itself
daemon itself was built with (its sockets, its store, its bounds) needs a restart: it is reported, and the old
value stays in force.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from daemon.config import client_keys
from daemon.config.config_files import (
    EnvFile,
    ProfileFiles,
    at_once,
    open_to_others,
    read_beside,
    read_env_beside,
)
from daemon.config.config_model import (
    WORKSPACE,
    Category,
    Config,
    Profile,
    Server,
    Share,
    StartMode,
    TransportType,
)
from daemon.config.expand import HTTP_KEYS, Sources, expand_entry, read_file, with_env_file
from daemon.config.jsonc import ROOT, below, decode, outward, placed
from daemon.config.listen import DEFAULT_PROFILE, Tls
from daemon.config.names import SERVER_NAME
from daemon.config.structure import expected, keys, read
from daemon.config.translation import Normalized, normalized
from daemon.config.tuning import Restart
from daemon.config.validate import Named, check, eager_faults, infer_type
from daemon.errors import ConfigError, Fault
from daemon.kit.wording import MAX_QUOTED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping


FIXED = ("listen", "state", "limits", "search")
"""Keys that the running daemon was built with: changing them needs a restart."""

APPLIED = ("autostart", "categories", "idle", "lazy", "metrics", "profiles", "summaries", "watch")
"""Keys other than `mcpServers` that are read from the catalog on each use, so that changes apply at once."""


@attrs.frozen(kw_only=True)
class Plan:
    """What to do: names of servers in the order of the new configuration (`removed`: of the old one).

    Each server of either configuration is in exactly one of the first seven fields.
    """

    added: tuple[str, ...] = ()
    """New servers, to be started unless the configuration disables them."""
    removed: tuple[str, ...] = ()
    """Servers to stop and forget."""
    enabled: tuple[str, ...] = ()
    """Servers that the configuration enables again: to be started."""
    disabled: tuple[str, ...] = ()
    """Servers that the configuration now disables: to be stopped."""
    restarted: tuple[str, ...] = ()
    """Servers to restart with their new configuration."""
    changed: tuple[str, ...] = ()
    """Servers of which only the description changed: they keep running."""
    kept: tuple[str, ...] = ()
    """Servers that the change does not affect."""
    sections: tuple[str, ...] = ()
    """Keys other than `mcpServers` that changed and take effect at once."""
    needs_restart_of_daemon: tuple[str, ...] = ()
    """Keys that changed and take effect only when the daemon is restarted."""


def plan(old: Config, new: Config) -> Plan:
    """What to do to get from the configuration in force to a new one."""
    told: dict[str, list[str]] = {}
    for name, server in new.mcp_servers.items():
        told.setdefault(_what_became(old.mcp_servers.get(name), server), []).append(name)
    return Plan(
        removed=tuple(name for name in old.mcp_servers if name not in new.mcp_servers),
        sections=_different(old, new, APPLIED),
        needs_restart_of_daemon=_different(old, new, FIXED),
        **{what: tuple(names) for what, names in told.items()},
    )


def in_force(old: Config, new: Config) -> Config:
    """The configuration once the plan is applied: the new one with the old one's `FIXED` keys."""
    return attrs.evolve(new, **{key: getattr(old, key) for key in FIXED})


def _what_became(old: Server | None, new: Server) -> str:
    """The field of `Plan` that a server of the new configuration belongs to."""
    if old is None:
        return "added"
    if old.enabled != new.enabled:
        return "enabled" if new.enabled else "disabled"
    if new.enabled and _built_with(old) != _built_with(new):
        return "restarted"
    return "kept" if old == new else "changed"


def _built_with(server: Server) -> Server:
    """The server without what its actor does not depend on; a new key counts unless it is excluded here."""
    plain = attrs.evolve(server, title="", description="", workspaces=())
    return attrs.evolve(plain, substituted=frozenset(), credentials=frozenset())


def _different(old: Config, new: Config, keys: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(key for key in keys if getattr(old, key) != getattr(new, key))


def same(one: object, other: object) -> bool:
    """Whether two configurations, or parts of them, have the same values in the same order."""
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
"""Bytes of a configuration file: hundreds of servers fit many times over, a wrong file does not."""

FAULTY_SECONDS = 86400.0
"""Seconds between tries of a server whose entry is faulty: only a reload can mend the entry."""

_SECTIONS = ("mcpServers", "categories", "profiles")
_AN_OBJECT = "an object, {...}"

T = TypeVar("T")
Raw = dict[str, Any]


@attrs.frozen(kw_only=True)
class CheckedConfig:
    """A configuration without faults, and what else there is to say of it."""

    config: Config
    """What it says."""
    notes: tuple[Fault, ...] = ()
    """What was understood as something else, or is not obeyed; each with its place."""
    text: str = attrs.field(repr=False)
    """The file."""
    normal: Normalized = attrs.field(repr=False)
    """Where in it things are written."""

    def placed(self, faults: Iterable[Fault]) -> list[Fault]:
        """Faults that were found in the configuration, each with its place in the file."""
        return placed(self.normal.written(faults), self.text)


def load(path: Path, environ: Mapping[str, str], surfaces: Collection[str] = ()) -> Config:
    """Read the configuration at `path`, and the profiles in `profiles.d` and the variables in `env` beside it.

    A fault within a server's entry concerns that server alone: it is in `Server.faults`.

    Args:
        path: the configuration file.
        environ: what `${VAR}` stands for.
        surfaces: the names that a profile's `surface` may have; empty to leave them unchecked.

    Raises:
        ConfigError: it cannot be read, others can write it, or it has faults besides those of entries; the
            error lists all of them.
    """
    return _load(path, environ, surfaces, strict=False).config


def load_with_notes(path: Path, environ: Mapping[str, str], surfaces: Collection[str] = ()) -> CheckedConfig:
    """As `load`, with what else there is to say; a fault within a server's entry raises `ConfigError`, too."""
    return _load(path, environ, surfaces, strict=True)


def _load(path: Path, environ: Mapping[str, str], surfaces: Collection[str], *, strict: bool) -> CheckedConfig:
    source = str(path)
    try:
        with open(path, "rb", opener=at_once) as file:
            # Of a pipe that has a writer, as of a shell's <(...), what is written is waited for.
            os.set_blocking(file.fileno(), True)
            faults = open_to_others(path)
            content = file.read(MAX_CONFIG + 1)
    except FileNotFoundError:
        raise ConfigError(source, [Fault(path=ROOT, message=_how_to_make_one(path))]) from None
    except OSError as error:
        raise ConfigError(source, [Fault(path=ROOT, message=f"cannot be read: {error.strerror}")]) from None
    if faults:
        raise ConfigError(source, faults)
    text, variables = _text(content, source), read_env_beside(path)
    sources = Sources(environ=environ, kept=variables.values, base=path.parent, read_file=read_file)
    return _parse(text, source, sources, surfaces, read_beside(path), variables, strict=strict)


def load_changed(
    path: Path, changed: Mapping[Path, str], environ: Mapping[str, str], surfaces: Collection[str] = ()
) -> Config:
    """As `load`, as if some files held other texts: the configuration, or a profile's own beside it.

    Raises:
        ConfigError: it would have faults, or cannot be read; the error lists all of them.
    """
    source, variables, files = str(path), read_env_beside(path), read_beside(path)
    sources = Sources(environ=environ, kept=variables.values, base=path.parent, read_file=read_file)
    for beside, held in changed.items():
        if beside != path:
            files.put(beside, held)
    try:
        text = changed[path] if path in changed else _text(path.read_bytes(), source)
    except OSError as error:
        raise ConfigError(source, [Fault(path=ROOT, message=f"cannot be read: {error.strerror}")]) from None
    return _parse(text, source, sources, surfaces, files, variables, strict=False).config


def parse(
    text: str,
    *,
    source: str,
    environ: Mapping[str, str],
    surfaces: Collection[str] = (),
    read_file: Callable[[Path], str] = read_file,
) -> Config:
    """Read a configuration, strictly. `source` names it in errors; `${file:...}` paths start at its directory.

    `surfaces` are the names that a profile's `surface` may have; without any, they are not checked. Files
    beside it are not read.

    Raises:
        ConfigError: it has faults; the error lists all of them.
    """
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
        raise ConfigError(source, placed([*faults, Fault(path=ROOT, message=expected(_AN_OBJECT, raw))], text))
    faults += [*variables.faults, *files.faults, *files.beside(_names(raw, "profiles"), source)]
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
        *sorted(placed(files.placed(normal.notes), text), key=lambda note: (note.line, note.column)),
    )
    return CheckedConfig(config=config, notes=notes, text=text, normal=normal)


def _set_apart(
    config: Config, normal: Normalized, faults: list[Fault]
) -> tuple[dict[str, Server], list[Fault]]:
    """All servers, each with the faults of its entry, and the faults of everything else."""
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
    """The server of an entry with faults: all clients see that server fail, and each start fails at once."""
    return attrs.evolve(
        server,
        faults=tuple(normal.written(faults)),
        url=None,
        share=Share.ALL,
        start=StartMode.EAGER,
        restart=Restart(parked=FAULTY_SECONDS),
    )


def _read_config(raw: Raw, sources: Sources, faults: list[Fault]) -> Config:
    servers = {
        name: server
        for name, entry in _entries(raw, "mcpServers", faults).items()
        if (server := _read_server(name, entry, sources, faults)) is not None
    }
    categories = _read_all(Category, raw, "categories", faults)
    profiles = {DEFAULT_PROFILE: Profile(name=DEFAULT_PROFILE), **_read_all(Profile, raw, "profiles", faults)}
    rest = {key: value for key, value in raw.items() if key not in {*_SECTIONS, "$schema"}}
    for name in [name for name in rest if name not in keys(Config)]:
        if not isinstance(rest[name], dict) or rest[name].keys().isdisjoint({"command", "url"}):
            continue
        written = f'this is a server: write it within "mcpServers": {{"{name[:MAX_QUOTED]}": {{...}}}}'
        faults.append(Fault(path=below(ROOT, name), message=written))
        del rest[name]
    config = _read_rest(rest, sources, faults)
    return attrs.evolve(config, mcp_servers=servers, categories=categories, profiles=profiles)


def _read_rest(raw: Raw, sources: Sources, faults: list[Fault]) -> Config:
    """What stands beside servers, categories and profiles."""
    listen, found = raw.get("listen"), frozenset[str]()
    if isinstance(listen, dict) and isinstance(listen.get("http"), dict):
        trail = below(below(ROOT, "listen"), "http")
        expanded, found, _ = expand_entry(listen["http"], trail, sources, faults, HTTP_KEYS)
        raw = {**raw, "listen": {**listen, "http": expanded}}
    if isinstance(raw.get("state"), dict):
        # The password of a database comes from outside, as that of a server does; `state_url` redacts it.
        state, _, _ = expand_entry(raw["state"], below(ROOT, "state"), sources, faults)
        raw = {**raw, "state": state}
    config = _with_key(read(Config, raw, ROOT, faults) or Config(), sources)
    http = config.listen.http
    if http is None:
        return config
    tls = http.tls and Tls(
        cert=_absolute(http.tls.cert, sources.base), key=_absolute(http.tls.key, sources.base)
    )
    return attrs.evolve(
        config, listen=attrs.evolve(config.listen, http=attrs.evolve(http, tls=tls, substituted=found))
    )


def _with_key(config: Config, sources: Sources) -> Config:
    """The configuration with the key of the endpoint for summaries, where it is kept beside it."""
    summaries = config.summaries
    if summaries is None or summaries.api_key_env is None:
        return config
    kept = sources.kept.get(summaries.api_key_env)
    return attrs.evolve(config, summaries=attrs.evolve(summaries, kept_key=kept))


def _read_server(name: str, raw: object, sources: Sources, faults: list[Fault]) -> Server | None:
    trail = below(below(ROOT, "mcpServers"), name)
    found: frozenset[str] = frozenset()
    credentials: frozenset[str] = frozenset()
    if isinstance(raw, dict):
        # A disabled server may refer to variables that are not set yet.
        if raw.get("enabled") is not False:
            raw, found, credentials = expand_entry(raw, trail, sources, faults)
            raw, more = with_env_file(raw, trail, sources, faults)
            found |= more
        kind = raw.get("type", infer_type(raw))
        if isinstance(kind, str) and kind not in set(TransportType):
            kind = client_keys.table().types.get(kind, kind)
        raw = {**raw, "type": kind}
    server = read(Server, raw, trail, faults, name=name)
    if server is None or not isinstance(raw, dict):
        return None
    if server.shared_by is not Share.ALL:
        faults += eager_faults(raw, trail)
    cwd = server.cwd and _absolute(server.cwd, sources.base)
    return attrs.evolve(server, substituted=found, credentials=credentials, cwd=cwd)


def _absolute(path: str, base: Path) -> str:
    # A path that begins with ~ is a fault, and the fault is about what was written. A workspace is absolute.
    return path if not path or path.startswith(("~", WORKSPACE)) else str(base.absolute() / path)


def _read_all(cls: type[T], raw: Raw, section: str, faults: list[Fault]) -> dict[str, T]:
    trail = below(ROOT, section)
    read_entries = {
        name: read(cls, entry, below(trail, name), faults, name=name)
        for name, entry in _entries(raw, section, faults).items()
    }
    return {name: entry for name, entry in read_entries.items() if entry is not None}


def _entries(raw: Raw, section: str, faults: list[Fault]) -> Raw:
    """The members of a section; none, and a fault, if it is not an object."""
    value = raw.get(section, {})
    if isinstance(value, dict):
        return value
    faults.append(Fault(path=below(ROOT, section), message=expected(_AN_OBJECT, value)))
    return {}


def _names(raw: Raw, section: str) -> tuple[str, ...]:
    value = raw.get(section)
    return tuple(value) if isinstance(value, dict) else ()


def _once(faults: list[Fault]) -> list[Fault]:
    """Each fault once, in the order in which they were found."""
    return list(dict.fromkeys(faults))


def _text(content: bytes, source: str) -> str:
    if len(content) > MAX_CONFIG:
        message = f"larger than {MAX_CONFIG // 1024**2} MiB: this is no configuration"
    elif content.startswith((b"\xff\xfe", b"\xfe\xff")):
        message = "this is UTF-16: save it as UTF-8"
    else:
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            message = f"line {line} is not UTF-8: save the file as UTF-8"
    raise ConfigError(source, [Fault(path=ROOT, message=message)])


def _how_to_make_one(path: Path) -> str:
    homeless = "" if os.environ.get("HOME") else "HOME is not set, so that / was taken for it. "
    return (
        f"there is no such file. {homeless}mcpd looks for its configuration at --config or $MCPD_CONFIG, else "
        "$XDG_CONFIG_HOME/mcpd/mcpd.json (~/.config/mcpd/mcpd.json), else /etc/mcpd/mcpd.json. To begin, type "
        "`mcpd up`, which takes over the servers of your clients, or `mcpd add`; or write "
        f'{{"mcpServers": {{}}}} to {path.absolute()} and paste your servers into it'
    )
