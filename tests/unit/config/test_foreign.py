"""A key of another client's is answered with what says the same here."""

from __future__ import annotations

import attrs
import pytest

from daemon.config.foreign import FOREIGN, unknown_key
from daemon.config.model import Category, Config, Server
from daemon.config.structure import keys

PERMISSIONS = 'write "permissions" of a profile: [{"match": "server/tool", "then": "allow"}]'


@pytest.mark.parametrize(
    ("cls", "key", "text"),
    [
        (
            Server,
            "disabled",
            'unknown key \'disabled\': write "enabled" and the opposite: "enabled": false for "disabled": true',
        ),
        (Server, "serverUrl", "unknown key 'serverUrl': write \"url\""),
        (Server, "timeout", 'unknown key \'timeout\': write "timeouts": {"call": 60}, in seconds'),
        *(
            (
                Server,
                key,
                f"unknown key '{key}': {PERMISSIONS}",
            )
            for key in ("alwaysAllow", "autoApprove", "trust")
        ),
        (Config, "servers", "unknown key 'servers': write \"mcpServers\""),
        (Category, "sever", "unknown key 'sever': did you mean 'server'?"),
    ],
)
def test_an_unknown_key_is_answered_with_ours(cls: type, key: str, text: str) -> None:
    assert unknown_key(cls, key, keys(cls)) == text


@pytest.mark.parametrize("cls", FOREIGN)
def test_no_key_of_ours_is_listed_as_foreign(cls: type) -> None:
    assert attrs.has(cls)
    assert not set(FOREIGN[cls]) & set(keys(cls))
