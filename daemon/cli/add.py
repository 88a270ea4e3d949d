"""`mcpd add`: adds a server to the configuration, and waits until it is up."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon.cli import EX_CONFIG
from daemon.cli.command import CommandLine, UsageError, argument
from daemon.cli.control import EX_FAULT
from daemon.cli.options import add_control, add_json
from daemon.cli.taking_effect import START_SECONDS, come_up, failure, in_lines
from daemon.host.paths import config_file, home
from daemon.safety.escape import document, visible

if TYPE_CHECKING:
    import argparse

    from daemon.cli.taking_effect import Effect
    from daemon.config.command_lines import Advice
    from daemon.setup.adding import WantedServer
    from daemon.setup.drafts import Draft, Present
    from daemon.setup.moved_secrets import Variables


def _run(options: argparse.Namespace) -> int:
    # Here, so that `--help` does not pay for attrs and cattrs.
    from daemon.setup.adding import WordsError  # noqa: PLC0415

    try:
        return _add(options, (options.config or config_file(os.environ)).absolute())
    except WordsError as error:
        raise UsageError(visible(str(error))) from None


def _add(options: argparse.Namespace, path: Path) -> int:
    from daemon.config.translation import SERVERS  # noqa: PLC0415 - as above
    from daemon.setup.adding import wanted  # noqa: PLC0415
    from daemon.setup.drafts import changed, read_present  # noqa: PLC0415
    from daemon.setup.moved_secrets import Variables  # noqa: PLC0415

    server = wanted(options.words, options.rest)
    present = read_present(path)
    if server.name in present.servers and not options.replace:
        print(
            f"mcpd: there is a server '{server.name}' in {visible(str(path))}: `mcpd remove {server.name}`, or"
            " --replace it; nothing was changed",
            file=sys.stderr,
        )
        return EX_FAULT
    variables = Variables(known={**present.variables, **os.environ})
    server = _pinned(_completed(options, server))
    entry, known = _completed_entry(server, variables, path)
    place = present.places.get(server.name, (SERVERS, server.name))
    draft = changed(present, lambda text: text.put(place, entry), variables.kept, os.environ)
    if options.dry_run:
        print(visible(draft.diff(), lines=True), end="")
        return 0
    draft.write()
    _say_written(options, server, variables, present)
    for each in known:
        print(visible(f"mcpd: {server.name} {each.written}"), file=sys.stderr)
    if options.no_reload:
        return 0
    return _finish(options, server.name, path, draft)


def _completed(options: argparse.Namespace, server: WantedServer) -> WantedServer:
    """The server with what options say of it."""
    import attrs  # noqa: PLC0415 - as above

    from daemon.setup.adding import pairs  # noqa: PLC0415

    more: dict[str, Any] = {"type": options.type, **server.entry}
    more |= {"env": pairs(options.env, "=", "key"), "headers": pairs(options.header, ":", "header")}
    more |= {"share": options.share}
    entry = {"description": options.description, **more}
    return attrs.evolve(server, entry={key: value for key, value in entry.items() if value})


def _pinned(server: WantedServer) -> WantedServer:
    from daemon.setup.adding import with_versions  # noqa: PLC0415 - as above
    from daemon.setup.versions import newest  # noqa: PLC0415

    server = with_versions(server, lambda package: newest(package, os.environ, home(os.environ)))
    for package in server.pinned:
        print(visible(f"mcpd: pinned to {package}, the newest version"), file=sys.stderr)
    for package in server.loose:
        print(
            visible(f"mcpd: warning: the version of '{package}' could not be looked up: it is not pinned"),
            file=sys.stderr,
        )
    return server


def _completed_entry(
    server: WantedServer, variables: Variables, path: Path
) -> tuple[dict[str, Any], tuple[Advice, ...]]:
    """The entry with references in place of secrets that were given literally, and with what is known of it."""
    import json  # noqa: PLC0415 - as above

    from daemon.config.command_lines import completed  # noqa: PLC0415
    from daemon.config.parse import parse  # noqa: PLC0415
    from daemon.config.redaction import secrets_of  # noqa: PLC0415
    from daemon.errors import ConfigError  # noqa: PLC0415
    from daemon.setup.moved_secrets import with_references  # noqa: PLC0415

    text = json.dumps({"mcpServers": {server.name: server.entry}})
    try:
        read = parse(text, source=str(path), environ=variables.known).mcp_servers[server.name]
    except ConfigError:  # the check of the whole file tells what is wrong
        return with_references(server.entry, server.name, frozenset(), variables), ()
    return completed(with_references(server.entry, server.name, secrets_of(read)[0], variables), read)


def _say_written(
    options: argparse.Namespace, server: WantedServer, variables: Variables, present: Present
) -> None:
    if variables.kept:
        names = ", ".join(variables.kept)
        print(f"mcpd: kept in {visible(str(present.env.path))}, for you only: {names}", file=sys.stderr)
    if not options.json:
        print(visible(f"added {server.name} to {present.config.path}"))


def _finish(options: argparse.Namespace, name: str, path: Path, draft: Draft) -> int:
    """Wait for the server, and tell how it is; take the edit back if the server cannot come up with it."""
    effect = come_up(options, path, name)
    told, undone = visible(effect.problem), options.or_undo and effect.asked and not effect.is_well
    if effect.seen is not None and not effect.is_well:
        told, is_wrong = failure(name, effect.seen)
        undone = undone or (is_wrong and not options.keep)
    if undone:
        draft.undo()
        come_up(options, path, name)
    if options.json:
        print(document(_data(name, effect, undone=undone)))
    elif effect.is_well:
        print(in_lines(name, effect))
    elif not effect.asked:
        print(f"mcpd: {name} was not tried: {told}. `mcpd start` starts a daemon", file=sys.stderr)
    else:
        after = f"it stays: `mcpd remove {name}` takes it back"
        if undone:
            after = "taken back: the files are as they were; add it again when that is mended, or with --keep"
        print(f"mcpd: {told}\nmcpd: {after}", file=sys.stderr)
    return 0 if effect.is_well or not effect.asked else EX_FAULT


def _data(name: str, effect: Effect, *, undone: bool) -> dict[str, Any]:
    seen = effect.seen or {}
    return {
        "server": name,
        "state": seen.get("state"),
        "reason": seen.get("reason") or effect.problem,
        "tools": list(effect.tools),
        "undone": undone,
    }


def _words(made: argparse.ArgumentParser) -> None:
    made.usage = "mcpd add [options] NAME -- COMMAND ... | NAME URL | [NAME] npm:PACKAGE | [NAME] pypi:PACKAGE"
    made.add_argument("words", metavar="NAME", nargs="*", help="the server's name, and what it is")


def _undoing(made: argparse.ArgumentParser) -> None:
    undoing = made.add_mutually_exclusive_group()
    undoing.add_argument("--keep", action="store_true", help="keep it whatever keeps it from coming up")
    undoing.add_argument(
        "--or-undo",
        action="store_true",
        help="take it back also if it waits for a login, a variable or a service",
    )


ADD = CommandLine(
    "add",
    "Add a server to the configuration, as a person would: comments, order and layout of the file stay."
    " The result is checked before it is written; the daemon, if one runs, reads it again, and the server's"
    " tools are shown when it is up. A server that cannot come up as it was added is taken back, unless you"
    " say --keep; one that waits for a login, a variable or a service stays. Packages without a version are"
    " pinned to the newest, and values of credentials are kept in the file 'env' beside the configuration,"
    " which only you can read.",
    examples=(
        "mcpd add pypi:mcp-server-time",
        "mcpd add memory npm:@modelcontextprotocol/server-memory",
        "mcpd add git --share workspace -- uvx mcp-server-git --repository '${workspace}'",
        "mcpd add github --env GITHUB_TOKEN=... -- docker run -i --rm -e GITHUB_TOKEN ghcr.io/o/server:1.2",
        "mcpd add notion https://mcp.notion.com/mcp --header 'Authorization: Bearer ...'",
    ),
    exits={
        0: "added; if a daemon runs, the server is up",
        1: "not added (the name is taken, the file cannot be written), or the server does not come up",
        EX_CONFIG: "the configuration is faulty, or would be: nothing was changed",
    },
    run=_run,
    arguments=(
        _words,
        argument("--env", metavar="K=V", action="append", default=[], help="a variable that it gets"),
        argument("--header", metavar="'K: V'", action="append", default=[], help="a header for its url"),
        argument("--type", metavar="T", help="its transport, where the url does not tell: sse"),
        argument("--share", metavar="S", help="who shares an instance of it: all, workspace or session"),
        argument("--description", metavar="D", help="what it is good for, in a sentence, for models"),
        argument("--replace", action="store_true", help="replace the server that has the name"),
        _undoing,
        argument("--no-reload", action="store_true", help="only write it: leave the daemon alone"),
        argument("--dry-run", action="store_true", help="show what would change, as a diff"),
        argument("--config", metavar="F", type=Path, help="the configuration (default: as `mcpd check`)"),
        add_json,
        partial(add_control, seconds=START_SECONDS),
    ),
    json=False,
    seconds=None,
    intermixed=True,
    rest=True,
    changing="",
)
