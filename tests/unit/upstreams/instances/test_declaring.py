"""What an instance is told of its client."""

import json
from typing import Any

from daemon.config.config_model import Instance, Server, TransportType
from daemon.protocol import CLIENT_CAPABILITIES
from daemon.upstreams.handshake import ROOTS, capabilities_of, roots_of


def server(**instance: Any) -> Server:
    own = Instance(label="s#1", **instance) if instance else None
    return Server(name="s", type=TransportType.STDIO, command="run", instance=own)


def test_where_clients_share_an_instance_all_that_one_may_have_is_declared() -> None:
    assert capabilities_of(server()) is CLIENT_CAPABILITIES
    assert capabilities_of(server(workspace="/x")) is CLIENT_CAPABILITIES


def test_who_has_one_to_itself_is_declared_as_it_is_as_far_as_it_can_be_passed_on() -> None:
    can: dict[str, object] = {"sampling": {"tools": {}}, "experimental": {"x": {}}}
    assert capabilities_of(server(capabilities=can)) == {"sampling": {"tools": {}}}
    assert capabilities_of(server(capabilities={})) == {}
    extensions = {"com.example/x": {"a": 1}, "io.modelcontextprotocol/tasks": {}}
    declared = capabilities_of(server(capabilities={"extensions": extensions}))
    assert declared == {"extensions": {"com.example/x": {"a": 1}}}


def test_with_a_workspace_there_are_roots() -> None:
    assert capabilities_of(server(capabilities={}, workspace="/x")) == {"roots": ROOTS}
    assert capabilities_of(server(capabilities={"roots": {}}, workspace="/x")) == {"roots": {}}
    said = roots_of(server(workspace="/home/me/a b"))
    assert said is not None
    assert json.loads(said) == {"roots": [{"uri": "file:///home/me/a%20b", "name": "a b"}]}
    assert roots_of(server()) is roots_of(server(capabilities={})) is None
