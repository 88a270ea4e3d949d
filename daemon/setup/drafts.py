"""mcpd's configuration and the file of secrets beside it, changed together: both or none."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any

import attrs

from daemon.config.expand import ENV_FILE, MAX_FILE, read_env, with_variable, without_variable
from daemon.config.parse import MAX_CONFIG, load, parse
from daemon.config.redaction import secrets
from daemon.config.translation import SERVERS, normalized
from daemon.documents.edited import spelt
from daemon.documents.files import DocumentError, Edit, look, undo_all, unified_diff, write_all
from daemon.documents.formats import Format, read_document
from daemon.errors import ConfigError, Fault
from daemon.safety.redact import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from daemon.config.translation import Normalized
    from daemon.documents.edited import EditedText
    from daemon.documents.files import FoundFile


@attrs.frozen(kw_only=True)
class Present:
    """mcpd's configuration and the file of secrets as they are, whether or not they are there."""

    config: FoundFile
    env: FoundFile
    servers: Mapping[str, Any] = attrs.field(repr=False)
    """The servers, in mcpd's keys."""
    places: Mapping[str, tuple[str, ...]]
    """The trail at which each is written."""
    variables: Mapping[str, str] = attrs.field(repr=False)
    """What the file of secrets holds."""


@attrs.frozen(kw_only=True)
class Draft:
    """Both files as they are to be, checked."""

    present: Present
    config: str
    env: str = attrs.field(repr=False)
    secrets: frozenset[str] = attrs.field(repr=False)
    """What the configuration must not show."""

    def diff(self) -> str:
        """What changes, as a unified diff, with names in place of secrets; empty if nothing does."""
        config, env = self.present.config, self.present.env
        told = unified_diff(config.path, config.text(), self.config)
        told = Redactor(self.secrets)(told, len(told))
        hidden = None if env.content is None else _hidden(_text(env))
        return told + unified_diff(env.path, hidden, _hidden(self.env))

    def write(self) -> None:
        """Write both files, or neither.

        Raises:
            DocumentError: one cannot be written, or was changed meanwhile.
        """
        if self.env != _text(self.present.env):
            _make_private(self.present.env)
        write_all(self._edits)

    def undo(self) -> None:
        """Give both files, which were written, their former content.

        Raises:
            DocumentError: one was changed since, or cannot be written.
        """
        undo_all(self._edits)

    @property
    def _edits(self) -> list[Edit]:
        both = ((self.present.env, self.env), (self.present.config, self.config))
        edits = (Edit(found=found, text=text, private=True) for found, text in both)
        return [edit for edit in edits if edit.is_new]


def read_present(path: Path) -> Present:
    """The configuration at `path`, and the secrets beside it.

    Raises:
        ConfigError: the configuration is not JSON, or its servers are no object.
        DocumentError: one of the files cannot be read.
    """
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


def _places(value: Mapping[str, Any], normal: Normalized) -> dict[str, tuple[str, ...]]:
    """The trail at which each server is written, which may be in a client's section and under a title."""
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
) -> Draft:
    """Both files after a change, if mcpd can run with them.

    Args:
        present: the files as they are.
        change: changes the configuration.
        variables: what is to be kept in the file of secrets besides.
        environ: the environment, which counts more than that file.
        missing: variables that servers may wait for.
        removed: variables that the file of secrets is not to hold any more.

    Raises:
        ConfigError: the configuration has faults already, or would have them.
        DocumentError: it is written in a way that cannot be edited.
    """
    source, before, env = present.config.path, _text(present.config), _text(present.env)
    here = {**present.variables, **environ}
    hidden = secrets(load(source, here)) if before.strip() else frozenset()
    document = read_document(before, Format.JSON, source=str(source))
    change(document)
    for name, value in variables.items():
        env = with_variable(env, name, value)
    for name in removed:
        env = without_variable(env, name)
    config = document.text()
    # What the text alone lacks, such as profiles in files of their own, it lacked before.
    known = {(fault.path, fault.message) for fault in _faults(before or "{}", source, here)}
    faults = _faults(config, source, {**read_env(env), **environ})
    new = [fault for fault in faults if (fault.path, fault.message) not in known]
    if new := [fault for fault in new if fault.variable not in missing]:
        raise ConfigError(str(source), new)
    _refuse_large(present.config, config, MAX_CONFIG)
    _refuse_large(present.env, env, MAX_FILE)
    return Draft(present=present, config=config, env=env, secrets=hidden)


def _refuse_large(found: FoundFile, text: str, most: int) -> None:
    if len(text.encode()) > most:
        raise DocumentError(
            f"{found.path} would have more than {most >> 10} KiB, which mcpd does not read: add fewer servers"
        )


def _faults(text: str, source: Path, environ: Mapping[str, str]) -> tuple[Fault, ...]:
    try:
        parse(text, source=str(source), environ=environ)
    except ConfigError as error:
        return tuple(error.faults)
    return ()


def _text(found: FoundFile) -> str:
    return found.text() or ""


def _make_private(env: FoundFile) -> None:
    """Take away what others may do with the file, before secrets are in it."""
    if env.content is None:
        return
    try:
        mode = stat.S_IMODE(env.target.stat().st_mode)
        if mode & 0o077:
            env.target.chmod(mode & ~0o077)
    except OSError as error:
        raise DocumentError(
            f"{env.path} may be read by others, which cannot be changed: {error.strerror}; nothing was written"
        ) from None


def _hidden(env: str) -> str:
    """A file of variables as it may be shown: by their names alone."""
    return "".join(f"{name}=(a secret)\n" for name in read_env(env))
