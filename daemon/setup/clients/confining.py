"""Imports the sandbox that a client gives a server in VS Code's keys, which mcpd also has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Any

from daemon.config.jsonc import below
from daemon.config.sandbox_keys import SandboxFilesystem, SandboxMode, SandboxNetwork, SandboxRules
from daemon.config.structure import keys
from daemon.config.translation import Note
from daemon.setup.clients.programs import IN_REGISTRY, Machine

_OURS = ("sandboxEnabled", "sandbox")
_KEYS = {"filesystem": keys(SandboxFilesystem), "network": keys(SandboxNetwork)}


def asks_for_sandbox(entry: Mapping[str, Any]) -> bool:
    """Whether an entry itself asks for a sandbox."""
    return bool(entry.get("sandboxEnabled", not _is_off(entry.get("sandbox"))))


def refused(name: str, entry: Mapping[str, Any], machine: Machine) -> str:
    """Why an entry must stay in its client; empty if it can be imported."""
    if entry.get("type") == IN_REGISTRY:
        return f"is a server of a registry: `mcpd add {quote(f'registry:{name}')}` adds it"
    if not isinstance(entry.get("command"), str) and not isinstance(entry.get("url"), str):
        return "has neither a command nor a url"
    if not asks_for_sandbox(entry) or not (problem := machine.no_sandbox()):
        return ""
    return (
        f"runs in a sandbox, which cannot be made here: {problem}. It stays there. To run it in mcpd without"
        f" a sandbox, name it: `mcpd import --write --unsandboxed {quote(name)}`"
    )


def with_common(entry: Any, common: object) -> Any:
    """Add the rules that VS Code writes once per file, for all its sandboxes, to a client's entry."""
    is_open = not isinstance(entry, dict) or entry.get("sandboxEnabled") is not True
    return entry if is_open or common is None else {"sandbox": common, **entry}


def with_sandbox(
    entry: Mapping[str, Any], *, by_project: bool, unsandboxed: bool
) -> tuple[dict[str, Any], list[Note]]:
    """Return an entry, in mcpd's keys, with its sandbox in mcpd, and notes on lost settings.

    `by_project`: a project's entry must not leave the sandbox; `unsandboxed`: the user takes it out.
    """
    made, notes = {key: value for key, value in entry.items() if key not in _OURS}, list[Note]()
    given = {key: entry[key] for key in _OURS if entry.get(key) is not None and entry.get("command")}
    if unsandboxed and asks_for_sandbox(given):
        return {**made, "sandboxEnabled": False}, notes
    for key, value in given.items():
        if by_project and (value is False or (key == "sandbox" and _is_off(value))):
            message = "ignored: a project may not take its servers out of your sandbox"
            notes.append(Note(key=key, message=message, lost=True))
        elif isinstance(value, dict):
            made[key] = _known(value, key, keys(SandboxRules), notes)
        else:
            made[key] = value
    return made, notes


def relative_paths(entry: Mapping[str, Any]) -> Iterator[str]:
    """Paths of a sandbox that start in the server's directory."""
    rules = entry.get("sandbox")
    files = rules.get("filesystem") if isinstance(rules, dict) else None
    listed = files.values() if isinstance(files, dict) else ()
    paths = (str(path) for each in listed if isinstance(each, list) for path in each)
    return (f"./{path}" for path in paths if not path.startswith(("/", "~", "${")))


def _is_off(sandbox: object) -> bool:
    mode = sandbox.get("mode") if isinstance(sandbox, dict) else sandbox
    return mode == SandboxMode.OFF or (mode is None and not isinstance(sandbox, dict))


def _known(rules: Mapping[str, Any], trail: str, known: Any, notes: list[Note]) -> dict[str, Any]:
    """The members that mcpd knows; a note is added about each other member."""
    message = "ignored: mcpd has no such setting"
    notes += [Note(key=below(trail, key), message=message, lost=True) for key in rules if key not in known]
    made = {key: value for key, value in rules.items() if key in known}
    for key in sorted(made.keys() & _KEYS.keys()):
        if isinstance(made[key], dict):
            made[key] = _known(made[key], below(trail, key), _KEYS[key], notes)
    return made
