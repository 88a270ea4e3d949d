"""When two entries are the same server."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.setup.clients.same import same_server


def runs(*words: str, **more: Any) -> dict[str, Any]:
    return {"command": words[0], "args": [*words[1:]], **more}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (runs("npx", "-y", "pkg"), runs("npx", "pkg")),
        (runs("npx", "pkg@latest", "a"), runs("/opt/node/bin/npx", "--yes", "pkg", "a", env={})),
        (runs("uvx", "pkg"), runs("uv", "tool", "run", "pkg")),
        (runs("x", enabled=False, timeouts={"call": 5}), runs("x", description="the same")),
        (
            {"url": "https://h/mcp/", "headers": {"X-Key": "1"}},
            {"url": "https://h/mcp", "type": "http", "headers": {"x-key": "1"}},
        ),
        (runs("x", env={"K": "secret"}), runs("x", env={"K": "${K}"})),
    ],
)
def test_who_wrote_it_makes_no_difference(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert same_server(one, other, {"K": "secret"})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (runs("npx", "pkg@1.0.0"), runs("npx", "pkg@1.0.1")),
        (runs("npx", "pkg@1.0.0"), runs("npx", "pkg")),
        (runs("x", "a", "b"), runs("x", "b", "a")),
        (runs("x", "-y"), runs("x")),
        (runs("/usr/bin/server"), runs("/opt/bin/server")),
        (runs("x", env={"K": "one"}), runs("x", env={"K": "two"})),
        (runs("x", env={"K": "one"}), runs("x", env={"K": "${L}"})),
        (runs("x", cwd="/a"), runs("x", cwd="/b")),
        ({"url": "https://h/mcp"}, {"url": "https://h/sse"}),
        ({"url": "https://h", "headers": {"A": "1"}}, {"url": "https://h"}),
        ({"url": "https://h"}, runs("https://h")),
    ],
)
def test_other_versions_arguments_and_tokens_make_another_server(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert not same_server(one, other, {"K": "secret"})
