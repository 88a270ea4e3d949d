"""After a night in which three things happened, each is told by one command in the morning."""

from __future__ import annotations

import json
import re

import pytest

from tests.e2e.harness import own_directory
from tests.e2e.night import AWAY, CHANGED, SESSION, morning_after

pytestmark = pytest.mark.e2e


def test_what_happened_in_the_night_is_told_in_the_morning() -> None:
    with morning_after(own_directory()) as daemon:
        away = daemon.run("events", AWAY, "--since", "12h")
        assert "ended: killed by SIGKILL" in away
        assert "notes: cannot open" in away
        assert "restarted: an operator asked for it" in away
        assert re.search(r"ready after .*; was away 3h.*, since .*, over a restart of mcpd\n", away)

        [changed] = [
            json.loads(line)
            for line in daemon.run("events", "--json", "--kind", "lists-changed", "--since", "12h").splitlines()
        ]
        tools = changed["details"]["tools"]
        assert (changed["server"], tools["came"], tools["went"]) == (CHANGED, ["radar"], ["forecast"])
        assert "current" in tools["changed"]

        loaded = daemon.run("sessions", SESSION)
        assert "weather/current" in loaded
        assert "weather/forecast" in loaded
        assert "files/read_file" in loaded
        assert "It was changed (argument place changed) at 2" in loaded
        assert "It was removed at 2" in loaded
        assert {name: each["status"] for name, each in daemon.loaded(SESSION).items()} == {
            "weather/current": "invalid_changed",
            "weather/forecast": "invalid_deleted",
            "files/read_file": "valid",
        }
