"""Recorded behaviour of the last release: the answers of its daemon, and the requests of its commands.

`python -m tests.e2e.last_release` records both again, with the release's code from git, into
`last_release.json`: at once for a new command, for the rest when there is another release.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs

from tests.e2e import whole_server
from tests.e2e.harness import MCPD, ROOT, running
from tests.waiting import WAIT

Json = dict[str, Any]

COMMIT = "b857626a1b"
"""mcpd 0.1.0, according to the changelog."""

RECORDED = Path(__file__).with_name("last_release.json")
CONFIG: Json = {
    "mcpServers": {"one": {"command": sys.executable, "args": [whole_server.__file__, "one", "modern"]}}
}

WORKS = {
    "status": 0, "status --json": 0, "status one": 0, "events": 0, "events one --since 1h": 0,
    "logs one": 0, "calls": 0, "cancel 17": 1, "audit": 1, "audit verify": 1, "sessions": 0,
    "calls --since 1h": 0,
    "sessions --json": 0, "sessions 4": 1, "allow 4 one/one_echo": 1, "unload 4 one/one_echo": 1,
    "tools": 0, "tools one": 0, "tools one/one_echo": 0, "tools --json": 0, "tools --surface full": 0,
    "search echo": 0, "prompts": 0, "resources": 0, "call one/one_echo name=x": 0, "call one/nope": 66,
    "call one/one_echo name=x --as-operator": 0, "prompt one/one_greet who=x": 0, "read mem://one/a": 0,
    "read file:///none": 0, "restart one": 0, "restart --all": 0, "disable one": 0, "enable one": 0,
    "disable one/one_echo": 0, "enable one/one_echo": 0, "reload": 0, "describe one/one_echo Echoes.": 0,
    "describe one/one_echo --reset": 0, "refresh one": 0, "lazy": 0, "lazy off": 0, "summaries": 0,
    "summaries --models": 1, "ui --print": 0, "token list": 0, "token new ci": 1, "metrics": 1,
    "login one": 1, "logout one": 1, "set one timeouts.call=30s": 0, "set . lazy=false": 0, "remove one": 0,
}  # fmt: skip
"""Commands that treat a daemon of the last release like today's, and their exit statuses."""

SAYS_SO = (
    *("approve", "approve --diff one", "approve one", "lock", "sandbox one", "tools --as-operator"),
    *("search echo --as-operator", "set . audit.enabled=false"),
)
"""Commands that the last release's daemon cannot serve."""


@attrs.define
class Link:
    """A control socket between commands and a daemon that records the messages of both."""

    path: Path
    behind: Path
    said: list[Json] = attrs.field(factory=list)
    """Requests with their answers."""
    closing: bool = False

    def serve(self, listener: socket.socket) -> None:
        """Serve one connection after another until `closing`."""
        while not self.closing:
            front = listener.accept()[0]
            front.settimeout(WAIT)
            with front, front.makefile("rwb") as asks, suppress(OSError):
                self.converse(asks)

    def converse(self, asks: Any) -> None:
        """Answer one command."""
        with socket.socket(socket.AF_UNIX) as back:
            back.settimeout(WAIT)
            back.connect(str(self.behind))
            with back.makefile("rwb") as answers:
                self._relay(asks, answers)

    def _relay(self, asks: Any, answers: Any) -> None:
        for line in asks:
            request = json.loads(line)
            answers.write(line)
            answers.flush()
            while (answer := json.loads(said := answers.readline())).get("id") != request["id"]:
                pass
            # A command that asks for the daemon's control socket comes back to this one.
            answer = json.loads(said := said.replace(bytes(self.behind), bytes(self.path)))
            kept = {key: answer[key] for key in ("result", "error") if key in answer}
            self.said.append({"method": request["method"], "params": request["params"], **kept})
            asks.write(said)
            asks.flush()


@attrs.define
class Replay(Link):
    """Answers commands as the daemon of the last release answered the same, or a similar, command."""

    own: list[Json] = attrs.field(factory=list)
    """Its answers to the same command, in order."""
    others: list[Json] = attrs.field(factory=list)

    def converse(self, asks: Any) -> None:
        """Answer one command."""
        for line in asks:
            request = json.loads(line)
            self.said.append(request)
            answer = {"jsonrpc": "2.0", "id": request["id"], **self._answer(request)}
            asks.write(json.dumps(answer).encode() + b"\n")
            asks.flush()

    def _answer(self, request: Json) -> Json:
        method, params = request["method"], request["params"]

        def likeness(each: Json) -> int:
            return sum(each["params"].get(key, each) == value for key, value in params.items())

        for said in (self.own, self.others):
            if same := [each for each in said if each["method"] == method]:
                best = max(same, key=likeness)
                # Who polls gets the last answer again.
                if said is self.own and len(same) > 1:
                    said.remove(best)
                return {key: best[key] for key in ("result", "error") if key in best}
        return {"error": {"code": -32601, "message": f"Method not found: {method}. There are: status"}}


@contextmanager
def listening(link: Link) -> Iterator[Link]:
    """Let a link serve at its path."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(link.path))
        listener.listen()
        listener.settimeout(WAIT)
        thread = threading.Thread(target=link.serve, args=(listener,))
        thread.start()
        try:
            yield link
        finally:
            # A last connection that says nothing wakes `accept`, which closing the socket under it does not.
            link.closing = True
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(str(link.path))
            thread.join(WAIT)
            link.path.unlink()


def recorded(directory: Path) -> Json:
    """The recording, with paths changed to `directory`."""
    found: Json = json.loads(RECORDED.read_text().replace("@DIR@", str(directory)).replace("@ROOT@", str(ROOT)))
    return found


def _record(tree: Path) -> Json:
    said: Json = {"today": {}, "release": {}}
    with running(CONFIG, code=tree, forked=False) as daemon:
        control = daemon.socket.with_name("control.sock")
        for words in (*WORKS, *SAYS_SO):
            for who, code in (("today", ROOT), ("release", tree)):
                daemon.ready()
                link = Link(daemon.directory / "link", control)
                own = {"MCPD_CONTROL": str(link.path), "MCPD_CONFIG": str(daemon.config)}
                with listening(link):
                    command = [*MCPD, *words.split()]
                    subprocess.run(command, cwd=code, env={**daemon.environ, **own}, check=False, timeout=WAIT)
                said[who][words] = link.said
                daemon.config.write_text(json.dumps(CONFIG))
                daemon.ask("reload")
                for name in ("one", "one/one_echo"):
                    daemon.ask("switch", name=name, off=False)
        text = json.dumps(said).replace(str(daemon.directory), "@DIR@")
    for path in {value for key, value in os.environ.items() if key in {"HOME", "PATH"}}:
        text = text.replace(json.dumps(path), '"/usr/bin"')
    whole: Json = json.loads(re.sub(f"{re.escape(str(tree))}|{re.escape(str(ROOT))}", "@ROOT@", text))
    # What commands ask again and again while they wait says the same.
    for each in whole.values():
        for words, exchanges in each.items():
            each[words] = [one for number, one in enumerate(exchanges) if one not in exchanges[:number]]
    return whole


def main() -> None:
    """Record the last release."""
    with tempfile.TemporaryDirectory() as tree:
        archive = subprocess.run(
            ["git", "archive", COMMIT], cwd=ROOT, stdout=subprocess.PIPE, check=True
        ).stdout
        subprocess.run(["tar", "-x", "-C", tree], input=archive, check=True)
        os.environ.pop("MCPD_CONTROL", None)
        whole = _record(Path(tree))
    lines = [
        f'"{who}": {{\n'
        + ",\n".join(f"{json.dumps(words)}: {json.dumps(said)}" for words, said in each.items())
        + "}"
        for who, each in whole.items()
    ]
    RECORDED.write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
