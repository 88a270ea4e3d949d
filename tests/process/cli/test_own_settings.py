"""`mcpd lazy` and `mcpd summaries` with a real daemon: what is written is in force, and layout stays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.harness import running
from tests.e2e.test_summaries import ENVIRON, at_hand, config
from tests.unit.summaries.endpoint_server import status, well

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.harness import Daemon

pytestmark = pytest.mark.process

COMMENT = "// mine\n"


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running({"mcpServers": {}, "profiles": {"reader": {"surface": "browse"}}}) as started:
        started.config.write_text(COMMENT + started.config.read_text())
        started.ask("reload")
        yield started


def test_a_switch_counts_at_once_for_a_client_that_is_connected(daemon: Daemon) -> None:
    with daemon.client().hello(profile="reader") as client:
        before = client.listed()
        assert "written at $.profiles.reader.lazy" in daemon.run("lazy", "off", "--profile", "reader")
        # There is no server, so all tools are none.
        assert (bool(before), client.listed()) == (True, [])
    text = daemon.config.read_text()
    assert text.startswith(COMMENT)
    assert daemon.ask("status")["daemon"]["surfaces"]["reader"] == "full"
    assert "reader off: full" in daemon.run("lazy")


def test_a_file_that_the_daemon_may_not_write_is_written_by_who_may(daemon: Daemon) -> None:
    daemon.config.chmod(0o400)
    refused = daemon.outcome("lazy", "off")
    assert refused.returncode == 1
    assert f"`mcpd lazy off --config {daemon.config}`" in refused.stderr
    daemon.config.chmod(0o600)
    said = daemon.run("lazy", "off", "--config", str(daemon.config))
    assert "the daemon has read it again" in said
    assert daemon.ask("status")["daemon"]["lazy"] is False


def test_a_model_is_listed_chosen_and_tried() -> None:
    models = status(200, json.dumps({"data": [{"id": "m"}, {"id": "n"}]}).encode())
    with at_hand(well) as server, running(config(server), ENVIRON) as daemon:
        daemon.run("disable", "painter")
        daemon.run("disable", "described")
        assert "boil_water" in daemon.run("summaries", "--test")
        server.behave(models)
        assert daemon.run("summaries", "--models").splitlines() == ["* m", "  n"]
        assert "written at $.summaries.model" in daemon.run("summaries", "--model", "n")
        assert daemon.run("summaries").startswith(f"n at 127.0.0.1:{server.port}")
        assert ENVIRON["MODEL_KEY"] not in daemon.run("summaries")
