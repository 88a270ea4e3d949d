"""What a transport is given."""

from __future__ import annotations

import attrs
import pytest

from daemon.config.model import Server
from daemon.transports.children import Children
from daemon.transports.context import OpenContext
from daemon.wire.outbox import Outbox
from tests.transports.listening import Listener


def test_a_context_cannot_be_changed_by_the_transport_that_gets_it() -> None:
    server = Server(name="s", command="x", env={"TOKEN": "canary"})
    context = OpenContext(server=server, events=Listener(), outbox=Outbox(), children=Children())
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        context.server = server  # type: ignore[misc]


def test_a_context_keeps_secrets_out_of_its_repr() -> None:
    server = Server(name="s", command="x", env={"TOKEN": "canary"}, headers={"Authorization": "canary"})
    context = OpenContext(server=server, events=Listener(), outbox=Outbox(), children=Children())
    assert "canary" not in repr(context)
