"""Waits for the effect of a changed configuration: the daemon's reload, and a server's state."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daemon.cli.command import agreed, drawn, has_terminal
from daemon.cli.control import (
    EX_FAULT,
    OTHER_VERSION,
    STATUS_SECONDS,
    DaemonUnreachable,
    RemoteFault,
    ask_with,
    note,
)
from daemon.host.paths import config_file
from daemon.kit.later import later
from daemon.kit.wording import counted
from daemon.safety.escape import document, visible
from daemon.states import COMING, SERVING, WAITING, WELL, in_sentence

if TYPE_CHECKING:
    import argparse

    from daemon.errors import CannotStart
    from daemon.operators.reports import ServerReport
    from daemon.setup.drafts import Draft
    from daemon.supervision import lifecycle

    Servers = Mapping[str, ServerReport]
else:
    lifecycle = later("daemon.supervision.lifecycle")

BACK = "taken back: the files are restored"

POLL_SECONDS = 0.25
"""Seconds between two requests for a starting server's state: cheap, and soon enough for a person."""

FIRST_LOOKS = 4
"""Requests for which a dormant server still counts as starting: a second, enough on a busy machine."""

WIDTH = 110
TOOL_LINES = 2
"""Lines for names of tools."""


class Effect(NamedTuple):
    """The outcome of a change of the configuration."""

    asked: bool
    problem: str
    """Why the daemon has not taken the change; empty if it has."""
    seen: ServerReport | None = None
    tools: tuple[str, ...] = ()
    answer: Any = None

    @property
    def is_well(self) -> bool:
        """Whether the server is up, or will start when needed."""
        return self.seen is not None and self.seen["state"] in WELL


APPROVALS = "Changes that these servers make to their tools later wait for your approval (`mcpd approve`)."
CONFINED = 'Servers run in a sandbox ("sandbox": "home"), which hides your keys and other secrets from them.'


MEANWHILE = "changed meanwhile, and waits: "


def show_approval(answer: Mapping[str, Any], waits: str) -> None:
    """Print the answer to `mcpd approve`; `waits` says why some definitions still wait."""
    print(drawn("daemon.cli.definition_views:render_approval", waits=waits)(answer))


def approve_rows(options: argparse.Namespace, waiting: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Approve exactly these definitions, which the user was shown, if the user agrees; else None."""
    if not (has_terminal() and agreed("Approve?", yes=False)):
        return None
    forms = {f"{each['server']}/{each['name']}": each["schemaHash"] for each in waiting}
    answer: Mapping[str, Any] = ask_with(options, "approve", {"forms": forms, "approve": True})
    show_approval(answer, MEANWHILE)
    return answer


def said_once(draft: Draft) -> list[str]:
    """Lines about a configuration that the command has created; none for an older one."""
    if not draft.creates:
        return []
    if draft.unconfined is None:
        return [APPROVALS, CONFINED]
    return [
        APPROVALS,
        f"Servers run without a sandbox: {without_sandbox(draft.unconfined)}, then `mcpd set . sandbox=home`.",
    ]


def without_sandbox(problem: CannotStart) -> str:
    """A sentence that sandboxes are missing, with the remedy."""
    return ". ".join(filter(None, (str(problem.reason.data["error"]), lifecycle.mending(problem))))


def edited_file(options: argparse.Namespace) -> Path:
    """The configuration to change: from `--config`, of the daemon behind `--socket`, or the usual file."""
    named = options.config or os.environ.get("MCPD_CONFIG")
    sockets = (options.control, options.socket, *map(os.environ.get, ("MCPD_CONTROL", "MCPD_SOCKET")))
    if not named and any(sockets):
        with suppress(DaemonUnreachable, RemoteFault):
            daemon = ask_with(options, "status", {}, timeout=STATUS_SECONDS)["daemon"]
            named = Path(daemon.get("directory") or "/", daemon["config"])
    return Path(named or config_file(os.environ)).absolute()


def typed_as(options: argparse.Namespace, *words: str) -> str:
    """A command line about the same configuration, for the user to copy."""
    named = () if options.config is None else ("--config", str(options.config))
    return f"`{shlex.join(['mcpd', *words, *named])}`"


def reloaded(options: argparse.Namespace, path: Path, name: str = "") -> Effect:
    """Have the daemon reload its configuration after a change of the server `name`."""
    try:
        answer = ask_with(options, "reload", {"server": name, "change": options.change})
    except DaemonUnreachable as error:
        return Effect(asked=False, problem=error.problem)
    except RemoteFault as fault:
        return Effect(asked=True, problem=f"the daemon did not accept it: {fault.message}")
    config = answer.get("config")
    if config is not None and Path(config).resolve() != path.resolve():
        return Effect(asked=True, problem=f"the running daemon uses another configuration: {config}")
    return Effect(asked=True, problem="", answer=answer)


def come_up(options: argparse.Namespace, path: Path, name: str) -> Effect:
    """Have the daemon reload, and wait until a server is up or fails."""
    effect = reloaded(options, path, name)
    if effect.problem:
        return effect
    seen, shown, looks = None, "", 0
    try:
        for servers in poll_servers(options, options.timeout):
            seen = servers.get(name)
            if seen is None:
                return Effect(asked=True, problem=f"the daemon does not have a server '{name}'")
            if seen["state"] == "backoff" and seen["nextRetryInMs"] is None:
                continue  # It has just ended: the cause is known once its last words are read.
            # Before its lists are read for the first time, what each client gets of its own is dormant.
            looks = looks + 1 if seen["state"] == shown else 0
            coming = COMING | {"dormant"} if looks < FIRST_LOOKS and not seen["tools"] else COMING
            if seen["state"] not in coming and not (seen.get("held") and _lists_more(seen)):
                break
            if seen["state"] != shown:
                shown = seen["state"]
                if options.change != "up":
                    note(f"{name} is {shown}; its first start may install it")
        if seen is not None and seen["state"] == "dormant":
            seen = _if_started(options, name, seen)
        return Effect(asked=True, problem="", seen=seen, tools=tuple(tools_of(options, name)))
    except DaemonUnreachable as error:
        return Effect(asked=True, problem=error.problem)


def _if_started(options: argparse.Namespace, name: str, seen: ServerReport) -> ServerReport:
    """The state of a dormant server, as far as a start shows it."""
    if options.change == "upgrade":
        # An upgrade is tried, which only a start does.
        ask_with(options, "refresh", {"server": name})
        seen = ask_with(options, "status", {})["servers"][name]
    if seen["state"] == "dormant" and seen["share"] != "all" and seen["cause"]:
        # Its first list has failed, and so would each client's start.
        seen["state"] = "failed"
    return seen


def _lists_more(seen: ServerReport) -> bool:
    return seen["state"] in SERVING and not all(each["known"] for each in seen["lists"].values())


def poll_servers(options: argparse.Namespace, seconds: float) -> Iterator[Servers]:
    """The servers' states, repeatedly for `seconds` but at least once. Raises DaemonUnreachable."""
    deadline = time.monotonic() + seconds
    while True:
        yield ask_with(options, "status", {})["servers"]
        if time.monotonic() > deadline:
            return
        time.sleep(POLL_SECONDS)


def tools_of(options: argparse.Namespace, name: str) -> dict[str, str]:
    """The tools that a server offers, with their hashes."""
    try:
        answer = ask_with(options, "tools", {"profile": None})
    except RemoteFault:
        answer = ask_with(options, "tools", {})  # mcpd 0.1.0 follows no profile here
    categories = answer["categories"].values()
    listed = [each for category in categories for each in category["tools"].items()]
    its = [(key, each["schemaHash"]) for key, each in listed if each["server"] == name and each["listed"]]
    return {key.removeprefix(f"{name}/"): digest for key, digest in its}


def in_lines(name: str, effect: Effect) -> str:
    """A running server in three lines: its state, and as many tools as fit."""
    assert effect.seen is not None
    # `tools` counts the server's own list: categories may have chosen none of it.
    number, state = effect.seen["tools"], effect.seen["state"]
    when = ", and is started when it is needed" if state == "dormant" else ""
    offers = f": {counted(number, 'tool')}" if number else ""
    return with_names(f"{name} is {in_sentence(state)}{when}{offers}", effect.tools)


def with_names(heading: str, names: Sequence[str]) -> str:
    """A heading followed by as many names as fit."""
    lines, left = [heading], [*names]
    while left and len(lines) <= TOOL_LINES:
        line = ""
        while left and len(line) + len(left[0]) + 2 <= WIDTH - len(", and 1000 more"):
            line += (", " if line else "") + left.pop(0)
        lines.append(f"  {line or left.pop(0)[:WIDTH]}")
    if left:
        lines[-1] += f", and {len(left)} more"
    return "\n".join(map(visible, lines))


def failure(name: str, seen: ServerReport) -> tuple[str, bool]:
    """Why a server did not come up and what to do, and whether its entry must be changed."""
    state = "is still starting" if seen["state"] in COMING else f"does not come up ({seen['state']})"
    lines = [f"{name} {state}" + (f": {seen['reason']}" if seen["reason"] else "")]
    diagnosis = [seen.get("happened", ""), seen.get("helps", "")]
    lines += diagnosis if any(diagnosis) else [f"`mcpd status` and `mcpd logs {name}` tell more."]
    lines += [f"stderr| {line}" for line in seen["stderr"]]
    is_wrong = seen["state"] in WAITING and not seen.get("waits")
    return "\n".join(map(visible, filter(None, lines))), is_wrong


def finish(
    options: argparse.Namespace,
    name: str,
    path: Path,
    undo: Callable[[], object],
    stays: str = "",
    tell: Callable[[], object] = lambda: None,
) -> int:
    """Wait for the server and report its state. If the change keeps it from starting, call `undo`, else `tell`.

    Raises KeyboardInterrupt if the user ends the wait.
    """
    after = stays or f"it stays: {typed_as(options, 'remove', name)} removes the server"
    try:
        effect = come_up(options, path, name)
    except KeyboardInterrupt:
        if not options.keep:
            undo()
            reloaded(options, path, name)
        note(after if options.keep else BACK)
        raise
    seen, why = effect.seen, visible(effect.problem, lines=True)
    held = [] if seen is None else list(seen.get("held", ()))
    undone = options.or_undo and effect.asked and not effect.is_well
    if seen is not None and not effect.is_well:
        why, is_wrong = failure(name, seen)
        undone = undone or (is_wrong and not options.keep)
    if undone:
        undo()
        come_up(options, path, name)
        # There is nothing any more to restart or to read again, nor, after `mcpd add`, to set.
        why = re.sub(r"[,.] (?:Then|then) `mcpd re(?:start|load)\b.*", ".", why)
        why = re.sub(r"`mcpd set \S+ ", "`", why) if options.change == "add" else why
    else:
        tell()
    if options.json:
        state, reason = (None, "") if seen is None else (seen["state"], seen["reason"])
        outcome = {"server": name, "state": state, "reason": reason or effect.problem, "tools": [*effect.tools]}
        print(document({**outcome, "held": held, "undone": undone}))
    elif effect.is_well:
        if options.change != "up":  # It reports its servers itself.
            print(in_lines(name, effect))
            if "sandbox" not in (seen or {}) and re.search("sandbox|trust", path.read_text()):
                note(f"the daemon ignores `sandbox` and `trust`: {OTHER_VERSION}")  # mcpd 0.1.0
            _approve(options, name, held)
    elif not effect.asked:
        note(f"{name} was not tried: {why}. `mcpd start` starts a daemon", lines=True)
    else:
        again = "" if options.change in {"sandbox", "up"} else ", or with --keep"
        after = f"{BACK}; try again when that is corrected{again}" if undone else after
        note(f"{why}\nmcpd: {after}", lines=True)
    return 0 if effect.is_well or not effect.asked else EX_FAULT


def _approve(options: argparse.Namespace, name: str, held: list[str]) -> None:
    """Show a server's definitions that wait for approval, and approve those that the user agrees to."""
    if not held:
        return
    waiting = ask_with(options, "approve", {"names": [name]})["waiting"]
    what = f"{name} lists {counted(len(waiting), 'definition')}, held until you approve:"
    print(with_names(what, [each["name"] for each in waiting]))
    if approve_rows(options, waiting) is None:
        print(f"`mcpd approve {name}` approves, `mcpd approve {name} --diff` shows more")
