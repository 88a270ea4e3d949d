"""`mcpd token`: the tokens that let clients in over HTTP: show the unnamed one; make, list and revoke others.

Works on the file in the state directory, with and without a daemon; one that runs is told at once.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon.cli.control import EX_FAULT, DaemonUnreachable, ask_with, guarded
from daemon.cli.options import add_control, add_json, parser
from daemon.host.paths import config_file, control_socket, state_dir
from daemon.safety.escape import document, visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from daemon.config.model import Config
    from daemon.host.tokens import Kept, TokenFile

ACTIONS = ("show", "new", "list", "revoke")

UNNAMED = "(no name)"
"""What a list calls the token without a name."""

Known = dict[str, Any]
"""What is known of configured tokens: the daemon's answer to `tokens`, or the same of a configuration."""


class NotDone(Exception):
    """It cannot be done; the text says why, and what would work."""


def main(argv: list[str]) -> int:
    """Show, make, list or revoke tokens.

    Returns:
        0: done; 1: refused, or the file of tokens cannot be used; 2: usage.
    """
    made = _parser()
    options = made.parse_args(argv)
    _check_usage(made, options)
    # The working directory may change below (`as_owner`).
    options.control = str(Path(options.control or control_socket(os.environ, options.socket)).absolute())
    # Here, so that `--help` does not pay for them.
    from daemon.host.tokens import TokenTrouble, as_owner  # noqa: PLC0415

    def act() -> int:
        known = _known(options)
        try:
            with as_owner(Path(known["state"])) as file:
                _ACTIONS[options.action](options, known, file)
        except (NotDone, TokenTrouble) as error:
            print(f"mcpd: {visible(str(error))}", file=sys.stderr)
            return EX_FAULT
        return 0

    return guarded(act)


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "token",
        "Show the token that mcpd keeps for clients over HTTP (made at the first start, or now), alone on the"
        " last line; make, list or revoke tokens with names, which count besides those of the configuration. A"
        " new token is shown once: only its digest is kept. A running daemon is told at once, and ends what a"
        " revoked token had open. For the daemon of another user, the system's for one, this takes root.",
        examples=(
            "mcpd token",
            'export MCPD_TOKEN="$(mcpd token)"',
            "mcpd token new ci --profile reader",
            "mcpd token new wall-display --console read",
            "mcpd token list",
            "mcpd token revoke ci",
            "mcpd token revoke --default",
        ),
        exits={0: "done", 1: "refused, or the file of tokens cannot be used"},
        asks=False,
    )
    made.add_argument("action", nargs="?", choices=ACTIONS, default="show", help="default: show")
    made.add_argument("name", metavar="NAME", nargs="?", help="of the token to make or to revoke")
    made.add_argument(
        "--profile",
        metavar="P",
        action="append",
        help="a profile that the new token may use; may be repeated, the first is for paths that name none"
        " (default: all of them)",
    )
    made.add_argument(
        "--console",
        choices=("read", "control"),
        help="let whoever signs in to the console with the new token read it, or change things (default:"
        " neither)",
    )
    made.add_argument(
        "--default", action="store_true", help="revoke the one without a name; a new one takes its place"
    )
    made.add_argument("--config", metavar="F", type=Path, help="the configuration, where no daemon answers")
    made.add_argument(
        "--state-dir", metavar="D", type=Path, help="where state is kept (default: as for mcpd run)"
    )
    add_json(made)
    add_control(made)
    return made


def _check_usage(made: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    action = options.action
    if action == "new" and options.name is None:
        made.error("name the new token: mcpd token new NAME")
    if action == "revoke" and (options.name is None) is not options.default:
        made.error("name the token to revoke, or write --default for the one without a name")
    if options.name is not None and action in {"show", "list"}:
        made.error(f"`mcpd token {action}` takes no name")
    for given, name, place in (
        (options.profile, "--profile", "new"),
        (options.console, "--console", "new"),
        (options.default, "--default", "revoke"),
        (options.json, "--json", "list"),
    ):
        if given and action != place:
            made.error(f"{name} goes with `mcpd token {place}`")


def _known(options: argparse.Namespace) -> Known:
    """What is known of tokens; `running` says whether a daemon that uses this state directory has answered."""
    try:
        answer = ask_with(options, "tokens", {})
    except DaemonUnreachable as error:
        print(
            f"mcpd: no daemon answers ({visible(error.problem)}): this is about the next one", file=sys.stderr
        )
    else:
        if options.state_dir is None or options.state_dir.absolute() == Path(answer["state"]):
            return {**answer, "running": True}
    return {**_configured(options), "state": str(options.state_dir or state_dir(os.environ)), "running": False}


def _configured(options: argparse.Namespace) -> Known:
    """What a configuration says; nothing is known if it is absent or has faults."""
    from daemon.config.listen import without_values  # noqa: PLC0415 - as in `main`
    from daemon.config.parse import load  # noqa: PLC0415
    from daemon.errors import ConfigError  # noqa: PLC0415

    path = options.config or config_file(os.environ)
    config: Config | None = None
    try:
        config = load(path, os.environ) if options.config or path.exists() else None
    except ConfigError:
        print(f"mcpd: {path} has faults (`mcpd check`): its tokens are not known", file=sys.stderr)
    http = None if config is None else config.listen.http
    return {
        "http": None if http is None else http.address,
        "configured": without_values(http),
        "profiles": None if config is None else list(config.profiles),
        "used": {},
        "problem": "",
    }


def _show(_options: argparse.Namespace, known: Known, file: TokenFile) -> None:
    _refuse_configured(known)
    was_there = file.read().default is not None
    made = file.ensure_default(time.time()).default
    assert made is not None
    if not was_there:
        _tell(_options, known)
    print(made.value)


def _new(options: argparse.Namespace, known: Known, file: TokenFile) -> None:
    from daemon.config.listen import ConsoleRole  # noqa: PLC0415 - as in `main`
    from daemon.config.listen_rules import TOKEN_NAME  # noqa: PLC0415
    from daemon.kit.wording import quoted, suggestion  # noqa: PLC0415

    if not TOKEN_NAME.fullmatch(options.name):
        raise NotDone(
            "a token's name is 1 to 64 of A-Z, a-z, 0-9, . _ @ and -, beginning with a letter or digit"
        )
    if any(each["name"] == options.name for each in known["configured"] or ()):
        raise NotDone(f"the configuration has a token {quoted(options.name)}: choose another name")
    for profile in options.profile or ():
        if known["profiles"] is not None and profile not in known["profiles"]:
            raise NotDone(f"unknown profile {quoted(profile)}{suggestion(profile, known['profiles'])}")
    profiles = tuple(dict.fromkeys(options.profile)) if options.profile else None
    role = None if options.console is None else ConsoleRole(options.console)
    value = file.add(options.name, profiles, time.time(), role)
    _tell(options, known)
    print("mcpd: keep it where its client finds it: it is not shown again", file=sys.stderr)
    print(value)


def _list(options: argparse.Namespace, known: Known, file: TokenFile) -> None:
    told = list(_told(known, file.read()))
    if options.json:
        print(document({"tokens": told, "problem": known["problem"]}))
        return
    for each in told:
        print(visible(_in_words(each)))
    if not told:
        print("There are none: `mcpd token` makes one.")
    if known["problem"]:
        raise NotDone(known["problem"])


def _revoke(options: argparse.Namespace, known: Known, file: TokenFile) -> None:
    if options.default:
        _refuse_configured(known)
        file.renew_default(time.time())
        print("revoked; `mcpd token` shows the new one")
    elif file.revoke(options.name):
        print(visible(f"{options.name}: revoked"))
    elif any(each["name"] == options.name for each in known["configured"] or ()):
        raise NotDone(
            f"the configuration has token '{options.name}': remove it there (listen.http.tokens), and start the"
            " daemon again"
        )
    else:
        from daemon.kit.wording import quoted, suggestion  # noqa: PLC0415 - as in `main`

        raise NotDone(f"no token is named {quoted(options.name)}{suggestion(options.name, file.read().tokens)}")
    _tell(options, known)


_ACTIONS = {"show": _show, "new": _new, "list": _list, "revoke": _revoke}


def _refuse_configured(known: Known) -> None:
    if known["configured"] is not None:
        raise NotDone(
            "the configuration has tokens (listen.http.tokens), so mcpd keeps none without a name: `mcpd token"
            " list` names them, `mcpd token new NAME` makes another"
        )


def _tell(options: argparse.Namespace, known: Known) -> None:
    """Have a running daemon read the file again."""
    if known["running"]:
        problem = ask_with(options, "tokens", {})["problem"]
        if problem:
            raise NotDone(f"the daemon cannot read it: {problem}")
    if known["http"] is None:
        print("mcpd: nobody is served over HTTP yet: listen.http, or `mcpd run --http`", file=sys.stderr)


def _told(known: Known, kept: Kept) -> Iterator[dict[str, object]]:
    """All tokens that count, without their values."""
    used = known["used"]
    for each in known["configured"] or ():
        yield {**each, "from": "configuration", "since": None, "lastUsed": used.get(each["name"] or "")}
    if known["configured"] is None and kept.default is not None:
        since = kept.default.since
        yield {
            "name": None,
            "profiles": None,
            "console": None,
            "from": "mcpd",
            "since": since,
            "lastUsed": used.get(""),
        }
    for name, token in kept.tokens.items():
        yield {
            "name": name,
            "profiles": token.profiles,
            "console": token.console,
            "from": "mcpd",
            "since": token.since,
            "lastUsed": used.get(name),
        }


def _in_words(token: dict[str, Any]) -> str:
    profiles = "all profiles" if token["profiles"] is None else ", ".join(token["profiles"])
    origin = "configured" if token["since"] is None else f"made {_day(token['since'])}"
    role = f"; the console, to {token['console']}" if token.get("console") else ""
    seen = f", last used {_day(token['lastUsed'])}" if token["lastUsed"] else ""
    return f"{token['name'] or UNNAMED}: {profiles}{role}; {origin}{seen}"


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
