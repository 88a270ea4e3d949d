"""What the tests of the reader share: a configuration in, its faults out."""

import json
from collections.abc import Mapping
from typing import Any

from daemon.config.config_model import Config, Server
from daemon.config.parse import parse
from daemon.errors import ConfigError
from daemon.surfaces.table import SURFACES

SOURCE = "mcpd.json"


def config_of(value: object, environ: Mapping[str, str] | None = None) -> Config:
    """The configuration that `value` says, as JSON."""
    return parse(json.dumps(value), source=SOURCE, environ=environ or {}, surfaces=SURFACES)


def server_of(entry: object, environ: Mapping[str, str] | None = None) -> Server:
    """The one server `s` that `entry` says."""
    return config_of({"mcpServers": {"s": entry}}, environ).mcp_servers["s"]


def faults_in(value: object, environ: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """Path and message of every fault of `value`; none if it is a good configuration."""
    return faults_in_text(json.dumps(value), environ)


def faults_in_text(text: str, environ: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """As `faults_in`, for a text."""
    try:
        parse(text, source=SOURCE, environ=environ or {}, surfaces=SURFACES)
    except ConfigError as error:
        return [(fault.path, fault.message) for fault in error.faults]
    return []


def with_server(**entry: Any) -> dict[str, Any]:
    """A configuration with one server `git`, which starts a command unless `entry` says otherwise."""
    return {"mcpServers": {"git": {"command": "mcp-server-git", **entry}}}
