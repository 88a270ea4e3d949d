"""`mcpd lazy` and `mcpd summaries` with a real daemon: what is written is in force, and layout stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.harness import running

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
