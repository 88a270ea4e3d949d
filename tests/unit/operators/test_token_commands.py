"""The answers of the command `tokens`, with tokens that a daemon keeps and without HTTP."""

import errno
import json
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio

from daemon.clients.doors.http.valid_tokens import Tokens
from daemon.config.redaction import Redactors
from daemon.errors import McpdError
from daemon.host.tokens import TokenFile
from daemon.operators.base import ConsoleAccess, OperatorContext, OperatorPeer, Refused
from daemon.operators.token_commands import TokenParams, UiParams, tokens, ui
from tests.fakes_upstream import Stage
from tests.unit.cases import cases
from tests.unit.config.reading import config_of
from tests.unit.operators.stage import operator_context

VALUE = "0123456789abcdef-of-ci"


async def context(tmp_path: Path, http: Any) -> OperatorContext:
    config = config_of({"listen": {} if http is None else {"http": http}, "profiles": {"reader": {}}})
    access = None
    if config.listen.http is not None:
        access = Tokens(config.listen.http, TokenFile(tmp_path / "state"), redact=Redactors(), wall=lambda: 7.0)
        await access.learn()
    return operator_context(Stage(config), access=access)


async def test_without_http_there_are_none_and_the_way_to_it_is_said(tmp_path: Path) -> None:
    where = await context(tmp_path, None)
    assert await tokens(where, TokenParams()) == {"http": None, "value": None, "tokens": [], "problem": ""}
    with pytest.raises(Refused, match=r"mcpd run --http"):
        await tokens(where, TokenParams(action="new", name="ci"))


async def test_one_is_made_shown_once_listed_and_revoked(tmp_path: Path) -> None:
    where = await context(tmp_path, {})
    asked = TokenParams(action="new", name="ci", profiles=("reader", "reader"), workspaces=("/srv/*", "~/x"))
    made = await tokens(where, asked)
    value = made["value"]
    assert isinstance(value, str)
    told = await tokens(where, TokenParams())
    assert value not in json.dumps(told)
    nothing = dict.fromkeys(("profiles", "console", "workspaces", "lastUsed"))
    expected = {**nothing, "from": "mcpd", "since": 7.0, "counts": True}
    ci = {"name": "ci", **expected, "profiles": ("reader",), "workspaces": ("/srv/*", "~/x")}
    assert told["tokens"] == [{"name": None, **expected}, ci]
    shown = await tokens(where, TokenParams(action="show"))
    assert shown == {**told, "value": shown["value"]}
    assert (await tokens(where, TokenParams(action="revoke")))["value"] is None
    assert (await tokens(where, TokenParams(action="show")))["value"] != shown["value"]
    await tokens(where, TokenParams(action="revoke", name="ci"))
    told = await tokens(where, TokenParams())
    assert [each["name"] for each in told["tokens"]] == [None]  # type: ignore[attr-defined]


@cases("params", "kind", "said")
async def test_a_refusal_says_what_helps(tmp_path: Path, params: dict[str, Any], kind: str, said: str) -> None:
    ci = {"name": "ci", "value": VALUE, "profiles": ["reader"], "workspaces": ["/srv/ci"]}
    where = await context(tmp_path, {"tokens": [ci]})
    with pytest.raises(McpdError, match=said) as refused:
        await tokens(where, msgspec.convert(params, TokenParams))
    assert type(refused.value).__name__ == kind
    told = await tokens(where, TokenParams())
    listed = [(each["name"], each["from"], each["workspaces"]) for each in told["tokens"]]  # type: ignore[attr-defined]
    assert listed == [("ci", "configuration", ("/srv/ci",))]
    assert VALUE not in json.dumps(told)


@attrs.define
class FakeConsole:
    """Lets people in as it is told to."""

    error: OSError | None = None

    async def link(self, who: str, *, may_change: bool) -> str:
        """Says for whom."""
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        return f"link {who} {may_change}"

    def end_all(self) -> int:
        """There were three."""
        return 3


def context_ui(console: ConsoleAccess, listen: Any = None) -> OperatorContext:
    peer: Any = OperatorPeer(None, None, b"1", 7)  # type: ignore[arg-type]
    return operator_context(Stage(config_of({"listen": listen or {}})), console=lambda: console, operator=peer)


@pytest.mark.parametrize("listen", [{}, {"http": {}}])
async def test_a_link_is_made_for_who_may_change_or_only_look(listen: dict[str, Any]) -> None:
    here = context_ui(FakeConsole(), listen)
    assert await ui(here, UiParams()) == {"link": "link uid 7 (console) True"}
    assert await ui(here, UiParams(read_only=True)) == {"link": "link uid 7 (console) False"}
    assert await ui(here, UiParams(end=True)) == {"ended": 3}


@pytest.mark.parametrize(
    ("error", "listen", "said"),
    [
        (None, {"http": {"console": False}}, '"console": false'),
        (OSError(errno.EMFILE, "Too many open files"), {}, "Too many open files"),
    ],
)
async def test_a_console_out_of_use_says_why(error: OSError | None, listen: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        await ui(context_ui(FakeConsole(error), listen), UiParams())
