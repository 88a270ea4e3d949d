"""Shapes of results on a real daemon: seen in calls of a client, told to operators, and never a value."""

import json
import sqlite3
from typing import Any

from tests.e2e.harness import Daemon, scripted, serving
from tests.scripted_server import tool
from tests.waiting import eventually

ISSUES = [{"number": 41_517, "title": "hush-hush", "assignee": None, "by_user": {"ann-4711": 1}}]
RESULT = {"content": [{"type": "text", "text": json.dumps(ISSUES)}]}
SHAPE = '[{"number": int, "title": str, "assignee": None, "by_user": {str: int}}]'
TYPED = tool("typed", outputSchema={"type": "object"})
CONFIG: dict[str, Any] = {
    "mcpServers": {"git": scripted(tools=["issues", TYPED], on={"tools/call": {"result": RESULT}})},
    "profiles": {"default": {"surface": "full"}},
}


def shown(daemon: Daemon, name: str) -> object:
    return json.loads(daemon.run("tools", f"git/{name}", "--json"))["observed"]


def test_the_shape_of_a_result_is_seen_shown_and_kept_and_no_value_is() -> None:
    with serving(CONFIG) as daemon:
        assert shown(daemon, "issues") is None
        with daemon.client().hello() as client:
            client.greet()
            for name in ("issues", "typed"):
                assert client.call(name, {})["content"] == RESULT["content"]
        eventually(lambda: shown(daemon, "issues") == SHAPE, daemon.said)
        assert shown(daemon, "typed") is None
        assert f"result, as observed\n  {SHAPE}" in daemon.run("tools", "git/issues")
        daemon.stop()
        (store,) = daemon.directory.rglob("state.db")
        with sqlite3.connect(store) as opened:
            rows = opened.execute("SELECT shape FROM observed_shapes").fetchall()
        opened.close()
        assert [json.loads(row[0]) for row in rows] == [
            [{"number": "int", "title": "str", "assignee": "None", "by_user": {"*": "int"}}]
        ]
        daemon.start()
        daemon.ready()
        eventually(lambda: shown(daemon, "issues") == SHAPE, daemon.said)
        daemon.config.write_text(json.dumps({**CONFIG, "observe": False}))
        daemon.run("reload")
        assert shown(daemon, "issues") is None
