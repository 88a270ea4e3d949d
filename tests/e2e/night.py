"""A night in which three things happened, for who has to find out what: `python -m tests.e2e.night DIRECTORY`.

A server was away for a while, in which mcpd was restarted, and came back; another one changed its tools; and a
client's session has loaded some of these. It is played within seconds; then what was stored of it is dated back
to the night, and the daemon goes on until Ctrl-C.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import sys
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.harness import Daemon, RawClient, scripted
from tests.scripted_server import tool
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

AWAY_SINCE, BACK_SINCE = 8, 5
"""How many hours ago the one server went away, and came back; then the other one changed."""

SESSION = "maria"
"""The session that has loaded tools."""

AWAY, CHANGED = "notes", "weather"
"""The server that was away, and the one that changed."""

_STARTER = 'test -r "$0" || { echo "notes: cannot open $0: No such file or directory" >&2; exit 3; }; exec "$@"'


def _place(**schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"place": {"type": "string", **schema}}, "required": ["place"]}


BEFORE = (
    tool("current", description="The weather at a place now.", inputSchema=_place()),
    tool("forecast", description="The weather at a place in the next days.", inputSchema=_place()),
    tool("alerts", description="Warnings for a place.", inputSchema=_place()),
)
"""What the server that changes offers in the evening."""

AFTER = (
    tool("current", description="The weather at a place now.", inputSchema=_place(description="City, country")),
    tool("alerts", description="Warnings for a place.", inputSchema=_place()),
    tool("radar", description="A picture of the rain around a place.", inputSchema=_place()),
)
"""What it offers in the morning."""


@contextmanager
def morning_after(directory: Path, **config: Any) -> Iterator[Daemon]:
    """The daemon in the morning after that night; `config` is what else its configuration says."""
    database, script = directory / "notes.db", directory / "weather.json"
    database.touch()
    script.write_text(json.dumps({"tools": BEFORE}))
    notes = scripted(tools=["echo", tool("search_notes", description="Find notes by their words.")])
    servers = {
        AWAY: {
            "command": "sh",
            "args": ["-c", _STARTER, str(database), notes["command"], *notes["args"]],
        },
        CHANGED: {**notes, "args": [*notes["args"][:-1], f"@{script}"]},
        "files": scripted(tools=["echo", tool("read_file", description="Read a file.")]),
    }
    daemon = Daemon(directory, {"mcpServers": servers, **config}, {})
    daemon.start()
    try:
        daemon.ready()
        repaired = _play(daemon, database, script)
        ended = time.time()
        daemon.stop()
        _date_back(daemon.state, repaired, ended)
        daemon.start()
        daemon.ready()
        yield daemon
    finally:
        with contextlib.suppress(ProcessLookupError):
            daemon.stop()


def _play(daemon: Daemon, database: Path, script: Path) -> float:
    """What happened in the night; returns when the server that was away was repaired."""
    client = RawClient(daemon.socket).hello(session=SESSION, surface="load")
    client.load("current", "forecast", server_name=CHANGED)
    client.load("read_file", server_name="files")
    client.close()

    database.unlink()
    os.kill(daemon.status()["servers"][AWAY]["pid"], signal.SIGKILL)
    eventually(lambda: daemon.status()["servers"][AWAY]["attempt"] >= 2, daemon.said)
    daemon.stop()
    daemon.start()
    daemon.ready(CHANGED, "files")
    repaired = time.time()
    database.touch()
    daemon.run("restart", AWAY)
    daemon.ready(AWAY)

    script.write_text(json.dumps({"tools": AFTER}))
    daemon.run("restart", CHANGED)
    daemon.ready(CHANGED)
    return repaired


def _date_back(state: Path, repaired: float, ended: float) -> None:
    """Move what was stored of the night to when it was; what came after it stays in the morning."""
    with closing(sqlite3.connect(state)) as store, store:
        for hours, since, until in ((AWAY_SINCE, 0.0, repaired), (BACK_SINCE, repaired, ended)):
            statement = "UPDATE events SET at = at - ? WHERE at >= ? AND at < ?"
            store.execute(statement, (hours * 3600, since, until))
        # What was loaded in the evening is lost to what changed in the night.
        store.execute("UPDATE loaded_tools SET loaded_at = loaded_at - ?", (AWAY_SINCE * 3600,))
        moved = "UPDATE sessions SET created_at = created_at - :by, seen_at = seen_at - :by"
        store.execute(moved, {"by": AWAY_SINCE * 3600})
        of_runs = "SELECT number, life, body FROM events WHERE server = ? AND kind IN ('ready', 'ended')"
        for number, life, body in store.execute(of_runs, (AWAY,)).fetchall():
            told = json.loads(body)
            if "awaySince" in told["details"]:
                told["details"]["awaySince"] -= AWAY_SINCE * 3600
            if "awaySeconds" in told["details"]:
                told["details"]["awaySeconds"] += (AWAY_SINCE - BACK_SINCE) * 3600
            where = (json.dumps(told).encode(), number, life)
            store.execute("UPDATE events SET body = ? WHERE number = ? AND life = ?", where)


if __name__ == "__main__":
    place = Path(sys.argv[1]).absolute()
    place.mkdir(parents=True, exist_ok=True)
    with morning_after(place) as morning:
        sys.stdout.write(f"export XDG_RUNTIME_DIR={place} XDG_STATE_HOME={place}/state\n")
        sys.stdout.write(f"The daemon serves at {morning.socket}; Ctrl-C ends it.\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
