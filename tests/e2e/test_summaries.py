"""Seed 002 FR-2, FR-3, NFR-2: a model's sentences in the real daemon, from a local endpoint, good and bad."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio

from tests.e2e.harness import Daemon, changeable, running, serving
from tests.e2e.loading import MODERN
from tests.scripted_server import tool
from tests.unit.summaries import endpoint_server
from tests.waiting import WAIT, eventually

SECRET = "sk-kept-between-us-1234567890"
ENVIRON = {"MODEL_KEY": SECRET}

PAINT = tool("paint", description="Paints a wall. Also fences, if there is time; mind the weather.")
DRAW = tool("draw", description="Draws a line. It may be long.")
OWN_WORDS = {"paint": "Paints a wall.", "draw": "Draws a line."}
"""What stands there until, and unless, a model has said something better."""

SAID = {"paint": "Does paint well.", "draw": "Does draw well."}
"""What `endpoint_server.well` says."""

DESCRIBED = "What its operator says of it."
"""Counts more than any model."""


@contextmanager
def at_hand(*behaviours: Any) -> Iterator[endpoint_server.EndpointServer]:
    """An endpoint in a thread of its own: the daemon is waited for here."""
    up, down = threading.Event(), trio.Event()
    found: list[tuple[endpoint_server.EndpointServer, trio.lowlevel.TrioToken]] = []

    async def serve() -> None:
        async with endpoint_server.endpoint() as server:
            server.behave(*behaviours)
            found.append((server, trio.lowlevel.current_trio_token()))
            up.set()
            await down.wait()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    assert up.wait(WAIT)
    server, token = found[0]
    try:
        yield server
    finally:
        token.run_sync_soon(down.set)
        thread.join()


def config(server: endpoint_server.EndpointServer, **summaries: Any) -> dict[str, Any]:
    """Two servers, one of them described by nobody."""
    profiles = {surface: {"surface": surface} for surface in ("category", "browse", "search", "load")}
    return {
        "mcpServers": {
            "painter": changeable(PAINT, DRAW),
            "described": {**changeable(tool("sing")), "description": DESCRIBED},
        },
        "profiles": {"default": {}, **profiles},
        "summaries": {"baseUrl": server.base_url, "model": "m", "apiKeyEnv": "MODEL_KEY", **summaries},
    }


def summarizer(daemon: Daemon) -> dict[str, Any]:
    """How the asking goes."""
    found: dict[str, Any] = daemon.ask("status")["summarizer"]
    return found


def lines(daemon: Daemon) -> dict[str, str]:
    """What is said of the painter's two tools."""
    with daemon.client().hello(profile="load") as client:
        found = client.call("load_mcp_server", {"name": "painter"})["structuredContent"]["servers"]["painter"]
        return {name: found["tools"][name] for name in OWN_WORDS}


def wait_said(daemon: Daemon) -> None:
    """Until a model's sentences stand there, all of them."""
    eventually(lambda: lines(daemon) == SAID and summarizer(daemon)["waiting"] == 0, daemon.said)


# --- where they stand ----------------------------------------------------------------------------------------


def test_sentences_stand_where_models_choose_and_are_searched_and_are_kept() -> None:
    with at_hand(endpoint_server.well) as server, serving(config(server), ENVIRON) as daemon:
        wait_said(daemon)
        look_everywhere(daemon)
        asked = len(server.asked)
        assert {each.headers["authorization"] for each in server.asked} == {f"Bearer {SECRET}"}

        # They are there at once after a restart, from whoever is up or not, and nothing is asked again.
        assert daemon.stop() == 0
        server.behave(endpoint_server.silence)
        daemon.start()
        assert lines(daemon) == SAID
        daemon.ready()
        look_everywhere(daemon)
        assert summarizer(daemon)["waiting"] == 0
        assert len(server.asked) == asked

        # What changes is asked about, and nothing else.
        server.behave(endpoint_server.well)
        daemon.changes("painter", PAINT, {**DRAW, "description": "Draws two lines."})
        assert lines(daemon) == {**SAID, "draw": "Draws two lines."}
        wait_said(daemon)
        assert [list(each.question["tools"]) for each in server.asked[asked:]] == [["draw"]]


def test_the_switch_rules_the_model_too_and_a_reload_asks_another() -> None:
    with at_hand(endpoint_server.well) as server, at_hand(endpoint_server.well) as other:
        with serving({**config(server), "lazy": False}, ENVIRON) as daemon:
            assert "switched off" in daemon.ask("summaries")["state"]["off"]
            daemon.config.write_text(json.dumps(config(other, model="another")))
            assert "needs a new start" not in daemon.run("reload")
            wait_said(daemon)
            assert (summarizer(daemon)["model"], other.asked[0].body["model"]) == ("another", "another")
            assert "another at 127.0.0.1:" in daemon.run("status", check=None)
            asked = len(other.asked)
            daemon.config.write_text(json.dumps({**config(other, model="another"), "lazy": False}))
            daemon.run("reload")
            daemon.changes("painter", PAINT, {**DRAW, "description": "Draws two lines."})
            daemon.ready()
            assert len(other.asked) == asked
            assert daemon.ask("summaries", test="")["test"]["model"] == "another"
        assert not server.asked


def look_everywhere(daemon: Daemon) -> None:
    """Each place that shows or uses a sentence does."""
    said = "Is good at 4 things."
    with daemon.client().hello(profile="load") as client:
        index = client.ask("tools/list")["result"]["tools"][0]["description"]
        assert f"- painter: {said}" in index
        assert f"- described: {DESCRIBED}" in index
        found = client.call("load_mcp_server", {"name": "painter"})["structuredContent"]["servers"]
        assert found["painter"]["summary"] == said
        # No description has that word: the model gave it.
        need = client.call("load_mcp_server", {"name": "pelican"})["structuredContent"]["servers"]
        assert "painter" in need
    with daemon.client().hello(profile="category") as client:
        assert f"painter: {said}" in client.ask("tools/list")["result"]["tools"][0]["description"]
    with daemon.client().hello(profile="browse") as client:
        assert said in json.dumps(client.call("list_categories", {})["structuredContent"])
    with daemon.client().hello(profile="search") as client:
        hits = client.call("search_tools", {"query": "pelican", "max_results": 20})["structuredContent"][
            "tools"
        ]
        assert {"paint", "draw"} <= {hit["name"] for hit in hits}


# --- endpoints that do not behave ----------------------------------------------------------------------------


def test_nothing_waits_for_an_endpoint_that_does_not_answer() -> None:
    with at_hand(endpoint_server.silence) as server, serving(config(server, timeout=1000), ENVIRON) as daemon:
        eventually(lambda: server.asked, daemon.said)
        assert lines(daemon) == OWN_WORDS
        daemon.changes("painter", PAINT, DRAW, tool("carve"))
        with daemon.client().hello(profile="load") as client:
            assert set(client.load("carve")) == {"carve"}
            assert client.call("carve", {})["isError"] is False
        assert daemon.run("refresh", "painter")
        assert daemon.stop() == 0


# --- the key -------------------------------------------------------------------------------------------------


def test_the_key_appears_nowhere() -> None:
    """Not even where the endpoint repeats it, in an error or in a sentence."""
    echoed = {"server": {"summary": f"Has the key {SECRET}.", "keywords": [SECRET]}, "tools": {}}
    refusing = endpoint_server.status(
        401, f'{{"error": {{"message": "Incorrect API key: {SECRET}"}}}}'.encode()
    )
    with (
        at_hand(refusing) as refuses,
        at_hand(endpoint_server.saying(echoed)) as repeats,
        running({**config(refuses), "metrics": {"enabled": True}}, ENVIRON) as one,
        running({**config(repeats), "metrics": {"enabled": True}}, ENVIRON) as other,
    ):
        for daemon, server in ((one, refuses), (other, repeats)):
            eventually(lambda server=server: server.asked, daemon.said)  # type: ignore[misc]
            eventually(lambda daemon=daemon: summarizer(daemon)["lastError"], daemon.said)  # type: ignore[misc]
            assert server.asked[0].headers["authorization"] == f"Bearer {SECRET}"
        assert "HTTP 401" in summarizer(one)["lastError"]
        assert "contains mcpd's key" in summarizer(other)["lastError"]
        for daemon in (one, other):
            shown = [daemon.run(*words, check=None) for words in OPERATORS]
            with daemon.client() as client:
                shown.append(json.dumps(client.ask("tools/list", MODERN[0]["params"])))
            assert daemon.stop() == 0
            kept = b"".join(path.read_bytes() for path in daemon.state.parent.iterdir() if path.is_file())
            assert b"painter" in kept
            assert SECRET not in "".join([*shown, daemon.said()])
            assert SECRET.encode() not in kept


OPERATORS = [["status"], ["status", "--json"], ["tools"], ["search", "paint"], ["metrics"], ["sessions"]]
