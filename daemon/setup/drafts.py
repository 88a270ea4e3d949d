"""Changes the configuration and its file of secrets together: both or neither."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from daemon.config.config_model import Trust
from daemon.config.expand import ENV_FILE, MAX_FILE, read_env, with_variable, without_variable
from daemon.config.parse import MAX_CONFIG, load, load_changed, parse
from daemon.config.redaction import secrets
from daemon.config.sandbox_keys import SandboxMode
from daemon.config.translation import SERVERS, Normalized, normalized
from daemon.documents.edited import EditedText, spelt
from daemon.documents.files import DocumentError, Edit, FoundFile, look, undo_all, unified_diff, write_all
from daemon.documents.formats import Format, read_document
from daemon.errors import CannotStart, ConfigError, Fault
from daemon.kit.later import later
from daemon.safety.redact import Redactor
from daemon.secrets import keyring

if TYPE_CHECKING:
    from daemon.sandbox import launch
else:
    launch = later("daemon.sandbox.launch")


EX_MEANWHILE = 75
"""Exit status if a change stays, but someone else changed the same file meanwhile."""

KEYRING = "keyring:"
"""Prefix of references to secrets in the keyring, and of their names among variables."""


@attrs.frozen(kw_only=True)
class Present:
    """The files as they are now; each may be missing."""

    config: FoundFile
    env: FoundFile
    servers: Mapping[str, Any] = attrs.field(repr=False)
    places: Mapping[str, tuple[str, ...]]
    variables: Mapping[str, str] = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class Draft:
    """Both new files, after they were checked."""

    present: Present
    config: str
    env: str = attrs.field(repr=False)
    secrets: frozenset[str] = attrs.field(repr=False)
    unconfined: CannotStart | None = None
    """Why a new configuration asks for no sandbox."""
    kept: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """Secrets to store in the keyring, by name."""
    environ: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @property
    def creates(self) -> bool:
        """Whether there is no configuration yet."""
        return self.present.config.content is None and bool(self.config)

    def diff(self) -> str:
        """A unified diff, with names in place of secrets; empty if nothing changes."""
        config, env = self.present.config, self.present.env
        shown = unified_diff(config.path, config.text(), self.config)
        shown = Redactor(self.secrets)(shown, len(shown))
        hidden = None if env.content is None else _hidden(_text(env))
        return shown + unified_diff(env.path, hidden, _hidden(self.env))

    def write(self) -> None:
        """Write both files and the keyring, or nothing. Raises DocumentError (changed since), SecretTrouble."""
        with ExitStack() as undo:
            undo.callback(self._forget)
            for name, value in self.kept.items():
                keyring.write(name, value, self.environ)
            if self.env != _text(self.present.env):
                _make_private(self.present.env)
            write_all(self._edits)
            undo.pop_all()

    @property
    def stands(self) -> bool:
        """Whether both files are still unchanged since they were written. Raises DocumentError."""
        return all(each.stands for each in self._edits)

    def undo(self) -> None:
        """Restore everything. Raises DocumentError if a file has changed since or cannot be written."""
        undo_all(self._edits)
        self._forget()

    def _forget(self) -> None:
        for name in self.kept:
            with suppress(keyring.SecretTrouble):
                keyring.remove(name, self.environ)

    @property
    def _edits(self) -> list[Edit]:
        both = ((self.present.env, self.env), (self.present.config, self.config))
        edits = (Edit(found=found, text=text, private=True) for found, text in both)
        return [edit for edit in edits if edit.is_new]


def read_present(path: Path) -> Present:
    """Read the configuration at `path` and its secrets. Raises ConfigError and DocumentError."""
    config, env = look(path), look(path.with_name(ENV_FILE))
    value = read_document(_text(config), Format.JSON, source=str(path)).value()
    normal = normalized(value if isinstance(value, dict) else {SERVERS: value})
    servers = normal.sections.setdefault(SERVERS, {})
    if not isinstance(value, dict) or not isinstance(servers, dict):
        raise ConfigError(str(path), [Fault(path=f"$.{SERVERS}", message="expected an object, {...}")])
    try:
        variables = read_env(_text(env))
    except ValueError as error:
        raise DocumentError(f"{env.path}: {error}: write one KEY=VALUE a line") from None
    return Present(config=config, env=env, servers=servers, places=_places(value, normal), variables=variables)


def in_keyring(entry: object) -> list[str]:
    """The names of the keyring's secrets that an entry refers to."""
    return [*dict.fromkeys(re.findall(r"(?<!\$)\$\{keyring:([^}]+)\}", repr(entry)))]


def known_values(present: Present, environ: Mapping[str, str], *, keyring_too: bool = False) -> dict[str, str]:
    """Values of variables, and of secrets that entries need, as `keyring:NAME`. Raises SecretTrouble."""
    names = keyring.names(environ) if keyring_too or in_keyring(present.servers) else ()
    secrets = {f"{KEYRING}{name}": keyring.read(name, environ) for name in names}
    return {**present.variables, **environ, **secrets}


def _places(value: Mapping[str, Any], normal: Normalized) -> dict[str, tuple[str, ...]]:
    """The trail of each server, which may be in a client's section and under its title."""
    trails: list[tuple[str, ...]] = [
        (section, key) for section, held in value.items() if isinstance(held, dict) for key in held
    ]
    within = value.get("mcp")
    if isinstance(within, dict) and isinstance(within.get("servers"), dict):
        trails += [("mcp", "servers", key) for key in within["servers"]]
    written = {spelt(trail): trail for trail in trails}
    names = [*normal.sections[SERVERS]]
    found = normal.written(Fault(path=spelt((SERVERS, name)), message="") for name in names)
    return {name: written[fault.path] for name, fault in zip(names, found, strict=True)}


def changed(
    present: Present,
    change: Callable[[EditedText], None],
    variables: Mapping[str, str],
    environ: Mapping[str, str],
    missing: Collection[str] = (),
    removed: Collection[str] = (),
    surfaces: Collection[str] = (),
) -> Draft:
    """Change both files in memory. Raises ConfigError (not about `missing` variables) and DocumentError."""
    source, before, env = present.config.path, _text(present.config), _text(present.env)
    here = {**present.variables, **environ}
    hidden = secrets(load(source, here)) if before.strip() else frozenset()
    document = read_document(before, Format.JSON, source=str(source))
    change(document)
    problem = None
    if present.config.content is None and document.text() != before:
        problem = launch.trial(environ)
        document.put(("sandbox",), str(SandboxMode.OFF if problem else SandboxMode.HOME))
        document.put(("trust",), str(Trust.CHANGES))
    kept = {name.removeprefix(KEYRING): variables[name] for name in variables if name.startswith(KEYRING)}
    for name, value in variables.items():
        env = env if name.startswith(KEYRING) else with_variable(env, name, value)
    for name in removed:
        env = without_variable(env, name)
    config = document.text()
    # What the text alone lacks, such as profiles in files of their own, it lacked before.
    known = {(fault.path, fault.message) for fault in _faults(before or "{}", source, here, surfaces)}
    then = {**read_env(env), **environ}
    faults = _faults(config, source, then, surfaces)
    new = [fault for fault in faults if (fault.path, fault.message) not in known]
    if new := [fault for fault in new if fault.variable not in missing]:
        raise ConfigError(str(source), new)
    hidden |= secrets(load_changed(source, {source: config}, then))
    _refuse_large(present.config, config, MAX_CONFIG)
    _refuse_large(present.env, env, MAX_FILE)
    return Draft(
        present=present, config=config, env=env, secrets=hidden, unconfined=problem, kept=kept, environ=environ
    )


def _refuse_large(found: FoundFile, text: str, most: int) -> None:
    if len(text.encode()) > most:
        raise DocumentError(
            f"{found.path} would have more than {most >> 10} KiB, which mcpd does not read: add fewer servers"
        )


def _faults(
    text: str, source: Path, environ: Mapping[str, str], surfaces: Collection[str]
) -> tuple[Fault, ...]:
    try:
        parse(text, source=str(source), environ=environ, surfaces=surfaces)
    except ConfigError as error:
        return tuple(error.faults)
    return ()


def _text(found: FoundFile) -> str:
    return found.text() or ""


def _make_private(env: FoundFile) -> None:
    """Remove other users' access before secrets are written."""
    if env.content is None:
        return
    try:
        mode = stat.S_IMODE(env.target.stat().st_mode)
        if mode & 0o077:
            env.target.chmod(mode & ~0o077)
    except OSError as error:
        raise DocumentError(
            f"others can read {env.path}, and mcpd cannot stop that: {error.strerror}; nothing was written"
        ) from None


def _hidden(env: str) -> str:
    return "".join(f"{name}=(a secret)\n" for name in read_env(env))
