"""The pages that add a server and connect clients, and the first run, all by mcpd's own command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs
import trio

from daemon.config.command_lines import packages_in
from daemon.config.expand import read_env
from daemon.config.names import slug
from daemon.console.changes import faults, way_back
from daemon.console.page import ConsoleAction, ConsolePage, Fragment, Holders, Notice, Viewer, part, server_page
from daemon.documents.edited import with_texts
from daemon.errors import Fault, InvalidArguments, McpdError
from daemon.facts import ServerStatus
from daemon.host.paths import home
from daemon.operators.base import DaemonFacts, Refused
from daemon.operators.own_lines import Printed, run_line
from daemon.safety.escape import document
from daemon.setup.adding import name_at, short_name, wanted
from daemon.setup.clients.importing import found_clients
from daemon.setup.clients.programs import Machine

_MEMBER = re.compile(r'"[^"\n]*"\s*:')
_BY_NAME = re.compile(r"(?:registry|npm|pypi):|.*\.(?:mcpb|dxt)$", re.IGNORECASE)

READ_SECONDS = 5.0
"""Most seconds to read clients' files: a network file system without its server never answers."""

_reading = trio.CapacityLimiter(2)  # threads that such a file system may hold


def line_of(fields: Mapping[str, str]) -> tuple[list[str], str, list[str]]:
    """Turn a form into the words, stdin and options of `mcpd add`. Raises InvalidArguments.

    A command and its variables may hold a secret, so they go by stdin.
    """
    what, name, env = (fields.get(each, "").replace("\r", "").strip() for each in ("what", "name", "env"))
    options = [f"--{key}={fields[key]}" for key in ("sandbox", "trust") if fields.get(key, "").isalpha()]
    words = ["add", name] if name else ["add"]
    is_member = _MEMBER.match(what)
    try:
        variables = read_env(env)
        if is_member or what.startswith(("{", "//", "/*")) or "```" in what:
            text = f"{{{what.rstrip(',')}}}" if is_member else what
            if not variables:
                return [*words, "-"], text, options
            server = wanted([*words[1:], "-"], (), lambda: text)
            its = server.entry.get("env")
            entry = {**server.entry, "env": {**(its if isinstance(its, dict) else {}), **variables}}
            return ["add", server.name, "-"], document(entry), options
        typed = shlex.split(what.replace("\\\n", " ").removeprefix("$ "))
    except ValueError as error:
        raise InvalidArguments(f"{error}: nothing was changed") from None
    if not typed:
        raise InvalidArguments("write what to add: a command, an address, registry:NAME or JSON")
    target = typed[0] if len(typed) == 1 else ""
    if _BY_NAME.match(target):
        return [*words, target], env, [*options, *["--env-file=-"] * bool(env)]
    known = next((short_name(each.name) for each in packages_in(typed)), slug(Path(typed[0]).stem))
    entry = {"command": typed[0], "args": typed[1:]}
    if "://" in target:
        known, entry = name_at(target), {"url": target}
    return ["add", name or known or "server", "-"], document({**entry, "env": variables}), options


def typed_faults(facts: DaemonFacts, fields: Mapping[str, str]) -> Sequence[Fault]:
    """The faults of the server that a form describes; none if a registry or bundle describes it. Blocks."""
    try:
        words, given, _options = line_of(fields)
        server = wanted(words[1:], (), lambda: given) if words[-1] == "-" else None
    except (McpdError, ValueError) as error:
        return getattr(error, "faults", None) or [Fault(path="$", message=str(error))]
    found = faults(facts, {"name": server.name, "entry": document(server.entry)}) if server else ()
    # Lines are of another text; the server's page has a field for a variable that is not set.
    return [attrs.evolve(each, line=None) for each in found if each.variable is None]


async def _add(viewer: Viewer, fields: Mapping[str, str]) -> Notice:
    """Run `mcpd add`; a server of a registry or bundle is shown first, and added when the form is sent `again`.

    `again` is the digest of the shown content; mcpd adds no other.
    """
    servers = {*viewer.context.catalog.servers}
    words, given, options = line_of(fields)
    is_offer, again = words[-1].partition(":")[0] not in {"-", "npm", "pypi"}, fields.get("again", "")
    asks = is_offer and not again.isalnum()
    options += ["--dry-run"] if asks else ["--yes", *[f"--shown={again}"] * is_offer]
    printed = await run_line(viewer.context, words, given, options=options)
    added = [name for name in {*viewer.context.catalog.servers} - servers if f"added {name} to" in printed.text]
    # An entry may stay although the daemon has not taken it, or its server does not come up.
    stays = not printed.status or re.search(r"^added \S+ to ", printed.text, re.MULTILINE)
    leads_to = server_page(added[0]) if added else "/servers" if stays and not asks else ""
    undo = await way_back(viewer.context.facts, added[0]) if added else None
    # In the first column: a description cannot name another digest.
    shown = re.search(r"^mcpd: `--shown (\w+)`", printed.text, re.MULTILINE)
    return Notice(
        printed.text,
        is_error=bool(printed.status),
        server="".join(added),
        leads_to=leads_to,
        undo=undo,
        shown=shown[1] if shown else "",
    )


async def _nothing(_viewer: Viewer) -> Holders:
    return {}


async def _asked(viewer: Viewer, *words: str, options: Sequence[str]) -> Printed:
    """The outcome of a command line that changes nothing, or the reason why the command line did not run."""
    try:
        return await run_line(viewer.context, words, options=options)
    except McpdError as error:
        return Printed(1, str(error))


FOUND_MOST = 10
"""Servers that a search shows: each may have a description of kilobytes, and the output is limited."""


async def _search(viewer: Viewer) -> dict[str, object]:
    words = viewer.query.get("q", "").split()
    if not (words and viewer.may_change):
        return {"found": [], "said": "", "unread": []}
    printed = await _asked(viewer, "search", *words, options=("--registry", "--json", f"--limit={FOUND_MOST}"))
    found = printed.data.get("servers", [])
    too_long = "" if found else "their descriptions are too long to show: write more words"
    said = printed.remarks if printed.status else too_long
    return {"found": found, "said": said, "unread": printed.data.get("unread", [])}


ADD_PAGE = ConsolePage(
    path="/add",
    title="Add a server",
    template="adding.html",
    fragments=_nothing,
    own=_search,
    in_navigation=False,
)

FOUND_SECONDS = 60.0
"""Seconds until clients' servers are searched again, which takes a process for a second."""

_NONE = Printed(1, "")
_found = dict[str, tuple[float, Printed]]()
_done = dict[str, Printed]()
"""The last `mcpd up` of the console, by configuration."""

_UP = ("--no-service", "--json")


async def first_run(viewer: Viewer) -> list[Fragment]:
    """Without servers, those that `mcpd up` finds in clients' files; after `mcpd up`, its outcome."""
    context, may, states = viewer.context, viewer.may_change, dict[str, ServerStatus]()
    key, servers = context.facts.config, context.catalog.servers
    if servers:
        known = _done.get(key, _NONE) if viewer.query.get("new") and may else _NONE
        names = [each["name"] for each in known.data.get("servers", ())]
        if not (states := {name: servers[name].status for name in names if name in servers}):
            return []
    else:
        at, known = _found.get(key, (-FOUND_SECONDS, _NONE))
        if may and trio.current_time() - at >= FOUND_SECONDS:
            known = await _asked(viewer, "up", options=("--dry-run", *_UP))
            _found[key] = trio.current_time(), known
    found, said = (known.data, known.remarks) if may else ({}, "")
    return [part("set-up", "first_run", found=found, states=states, said=said, helps=known.status == 0)]


async def _up(viewer: Viewer, _fields: Mapping[str, str]) -> Notice:
    done = await run_line(viewer.context, ("up",), options=("--yes", *_UP))
    if not done.data:
        return Notice(done.text, is_error=bool(done.status))
    _done[viewer.context.facts.config] = done
    said = done.remarks if done.status else ""  # The page shows it.
    return Notice(said, is_error=bool(done.status), leads_to="/servers?new=1")


async def _uninstall(viewer: Viewer, _fields: Mapping[str, str]) -> Notice:
    """Undo the last `mcpd up`: clients get their servers back before mcpd loses them."""
    context, done = viewer.context, _done.get(viewer.context.facts.config, _NONE).data
    clients = [each["client"] for each in done.get("clients", ()) if not each["pending"]]
    taken = [each["name"] for each in done.get("servers", ()) if not each["alreadyThere"]]
    lines = [("uninstall", *clients), ("remove", *(each for each in taken if each in context.catalog.servers))]
    ran = Printed(0, "")
    for line in lines:
        if line[1:] and not ran.status:
            after = await run_line(context, line)
            ran = attrs.evolve(after, text="\n".join(filter(None, (ran.text, after.text))))
    if not ran.text:
        raise Refused("nothing was set up here: nothing was undone")
    if not ran.status:
        del _done[context.facts.config]
    return Notice(ran.text, is_error=bool(ran.status), leads_to="/servers")


async def _clients(viewer: Viewer) -> dict[str, object]:
    facts = viewer.context.facts
    at = home(facts.environ)
    here = Machine(home=at, directory=Path(facts.directory or at), environ=facts.environ)
    try:
        with trio.fail_after(READ_SECONDS):
            look = partial(found_clients, here)
            found = await trio.to_thread.run_sync(look, abandon_on_cancel=True, limiter=_reading)
    except trio.TooSlowError:
        raise Refused(f"the files of clients below {at} were not read within {READ_SECONDS:g} s") from None
    # The message of a file that cannot be read may quote the file.
    return {"clients": with_texts(found, viewer.context.redact)}


CLIENTS_PAGE = ConsolePage(
    path="/clients", title="Clients", template="clients.html", fragments=_nothing, own=_clients
)


def _of_client(command: str) -> ConsoleAction:
    async def act(viewer: Viewer, fields: Mapping[str, str]) -> Notice:
        ran = await run_line(viewer.context, (command, fields.get("client", "")))
        return Notice(ran.text, is_error=bool(ran.status))

    return ConsoleAction(path=f"/clients/{command}", act=act)


CLIENT_ACTIONS = (_of_client("install"), _of_client("uninstall"))

ADDING_ACTIONS = (
    ConsoleAction(path="/add", act=_add, keeps=True),
    ConsoleAction(path="/up", act=_up),
    ConsoleAction(path="/uninstall", act=_uninstall),
)
