"""Changes servers' entries by mcpd's own command line, undoes them, and finds faults before writing.

A shown entry has `(a secret)` in place of each secret, as `mcpd set NAME -` accepts it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import msgspec
import trio
from trio.to_thread import run_sync as in_thread

from daemon.config.config_model import Share, Trust
from daemon.config.jsonc import decode, placed
from daemon.config.parse import load_changed
from daemon.config.redaction import secrets_of
from daemon.config.sandbox_keys import SandboxMode
from daemon.config.translation import SERVERS
from daemon.console.page import ConsoleAction, Notice, Undo, Viewer, server_page, with_query
from daemon.documents.edited import spelt, value_at, with_texts
from daemon.documents.formats import Format, read_document
from daemon.errors import ConfigError, Fault, InvalidArguments, McpdError
from daemon.operators.base import DaemonFacts, Refused
from daemon.operators.own_lines import run_line
from daemon.setup.drafts import EX_MEANWHILE, KEYRING, Present, read_present
from daemon.setup.moved_secrets import SHOWN, refer, references

Written: TypeAlias = tuple[Any, dict[str, str]]
"""An entry as written (None without one), and the secrets in the file `env` that it refers to."""

_REFERENCE = re.compile(r"(?<!\$)\$\{(\w+)\}")


def _present(facts: DaemonFacts) -> tuple[Path, Present, Any]:
    file = Path(facts.directory or "/", facts.config)
    present = read_present(file)
    return file, present, read_document(present.config.text() or "{}", Format.JSON, source=str(file))


def _written(facts: DaemonFacts, name: str) -> Written:
    _, present, document = _present(facts)
    entry = value_at(document.value(), present.places.get(name, ("",)))
    return entry, {each: present.variables[each] for each in references(entry) if each in present.variables}


def entry_of(facts: DaemonFacts, name: str) -> str:
    """An entry as JSON without secrets. Blocks; raises `McpdError` if the file cannot be read."""
    server = load_changed(_present(facts)[0], {}, facts.environ).mcp_servers.get(name)
    hidden = sorted(secrets_of(server)[0] if server else (), key=len, reverse=True)
    found = re.compile("|".join(map(re.escape, hidden)) or "(?!)")
    entry = with_texts(_written(facts, name)[0], lambda text: found.sub(SHOWN, text))
    return json.dumps(entry, indent=2, ensure_ascii=False)


CHOICES: Mapping[str, Sequence[str]] = {"share": [*Share], "sandbox": [*SandboxMode], "trust": [*Trust]}
"""The values of keys that a form chooses from."""


def keys_of(shown: str) -> dict[str, Any]:
    """The common keys of an entry, as a form has them: lists as lines, without those that lines cannot hold.

    None for an entry whose values have other shapes: it is corrected as JSON.
    """
    entry = json.loads(shown)
    shapes = {"args": list, "env": dict, "timeouts": dict}
    if not all(isinstance(entry.get(key, shape()), shape) for key, shape in shapes.items()):
        return {}
    variables = [f"{name}={value}" for name, value in entry.get("env", {}).items()]
    lines = {"args": entry.get("args", []), "env": variables} if "command" in entry else {}
    found = {key: entry[key] for key in ("command", "url") if key in entry}
    for key, each in lines.items():
        if all(line == str(line).strip() != "" and "\n" not in line for line in each):
            found[key] = "\n".join(each)
    found |= {key: entry.get(key, "") for key in CHOICES if isinstance(entry.get(key, ""), str)}
    return {**found, "call": entry.get("timeouts", {}).get("call", ""), "enabled": entry.get("enabled", True)}


def with_keys(shown: str, fields: Mapping[str, str]) -> str:
    """The entry with a form's keys, without those that the form leaves empty. Raises InvalidArguments."""
    if not keys_of(shown):
        raise InvalidArguments("this entry has values of other shapes than the form: correct it as JSON")
    entry, given = json.loads(shown), {key: text.replace("\r", "").strip() for key, text in fields.items()}
    new: dict[str, Any] = {key: given[key] for key in (*CHOICES, "command", "url") if key in given}
    new |= {key: [*filter(None, given[key].split("\n"))] for key in ("args", "env") if key in given}
    if "env" in new:
        new["env"] = dict(line.partition("=")[::2] for line in new["env"])
    call: Any = given.get("call", "")
    with suppress(ConfigError):  # "30s" is as good as 30
        call = decode(call, source="timeouts.call")[0]
    timeouts = {**entry.get("timeouts", {}), "call": call}
    new["timeouts"] = {key: each for key, each in timeouts.items() if each != ""}
    new["enabled"] = "" if "enabled" in given else False
    entry |= new
    return json.dumps({key: each for key, each in entry.items() if key not in new or each not in ("", [], {})})


def faults(facts: DaemonFacts, fields: Mapping[str, str]) -> Sequence[Fault]:
    """The faults that a server would have with the entry in a form, by line. Blocks."""
    name, text = fields.get("name", ""), fields.get("entry", "")
    try:
        file, present, document = _present(facts)
        place = present.places.get(name, (SERVERS, name))
        document.put(place, decode(text, source="the entry")[0])
        server = load_changed(file, {file: document.text()}, facts.environ).mcp_servers[name]
    except (McpdError, KeyError) as error:
        return getattr(error, "faults", None) or [Fault(path="$", message=str(error))]
    return placed(
        [attrs.evolve(each, path=each.path.replace(spelt(place), "$", 1)) for each in server.faults], text
    )


async def change(viewer: Viewer, words: tuple[str, ...], given: str = "") -> Notice:
    """Run a command line that changes the entry `words[1]` (renamed to `words[2]`). Raises as `run_line`."""
    facts, name, after = viewer.context.facts, words[1], words[2] if words[0] == "rename" else words[1]
    before = await in_thread(_written, facts, name)
    ran = await run_line(viewer.context, words, given)
    if ran.status not in {0, EX_MEANWHILE}:
        return Notice(ran.text, is_error=True, server=name)
    # To go back would take away what somebody else has written while the line ran.
    undo = None if ran.status else await way_back(facts, name, before, after)
    page = (
        ""
        if words[0] in {"pin", "upgrade", "enable", "allow-host"}
        else with_query(server_page(after), tab="settings")
    )
    leads_to = "/servers" if words[0] == "remove" else page
    return Notice(ran.text, undo=undo, leads_to=leads_to, server=after)


async def give(viewer: Viewer, name: str, lacks: str, value: str) -> Notice:
    """Put the value that a server `lacks` where its entry refers to it, else into `env`; start the server."""
    if lacks.startswith(KEYRING):
        ran = await run_line(viewer.context, ("secret", "set", lacks.removeprefix(KEYRING)), value)
        ran = ran if ran.status else await run_line(viewer.context, ("restart", name))
        return Notice(ran.text, is_error=bool(ran.status), server=name)
    entry = (await in_thread(_written, viewer.context.facts, name))[0]
    if (given := refer(entry, lacks, value)) == entry:
        given = {**entry, "env": {**entry.get("env", {}), lacks: value}}
    return msgspec.structs.replace(await change(viewer, ("set", name, "-"), json.dumps(given)), leads_to="")


async def way_back(facts: DaemonFacts, name: str, before: Written = (None, {}), after: str = "") -> Undo:
    """Make the undo of a change that led to `after`, or of an addition; it refuses if `after` changed again."""
    after = after or name
    with trio.CancelScope(shield=True):  # a browser that has left finds the outcome on its next page
        now = await in_thread(_written, facts, after)

    async def undo(viewer: Viewer) -> Notice:
        if (current := await in_thread(_written, facts, after)) != now:
            raise Refused(f"{after} was changed again since then: nothing was undone")
        # A new secret stands where the old one did.
        lost = {each: text for each, text in before[1].items() if current[1].get(each) != text}
        real = with_texts(
            before[0], lambda text: _REFERENCE.sub(lambda found: lost.get(found[1], found[0]), text)
        )
        is_gone, is_new = now[0] is None, before[0] is None
        back = ("add", name, "-") if is_gone else ("remove", name) if is_new else ("set", name, "-")
        return await change(viewer, back if name == after else ("rename", after, name), json.dumps(real))

    return undo


async def _undo(viewer: Viewer, fields: Mapping[str, str]) -> Notice:
    if viewer.last is None or viewer.last.undo is None or viewer.last.key != fields.get("key"):
        raise Refused("this is not the last change of this session any more: nothing was undone")
    return await viewer.last.undo(viewer)


UNDO = ConsoleAction(path="/undo", act=_undo)
