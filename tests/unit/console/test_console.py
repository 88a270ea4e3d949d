"""The console before anybody has asked for a page, and who signs in with which token."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
import trio

from daemon.clients.client import Principal
from daemon.config.listen import ConsoleRole
from daemon.console.console import Console
from tests.fakes_upstream import Stage
from tests.unit.console.browsing import HOST, Browser
from tests.unit.operators.stage import operator_context

if TYPE_CHECKING:
    from collections.abc import Callable

TOKENS = {
    "of-a-client": Principal(token="ci"),
    "of-a-reader": Principal(token="wall", console=ConsoleRole.READ),
    "of-an-operator": Principal(token="me", console=ConsoleRole.CONTROL),
}


def a_console(match: Callable[[str], Principal | None] | None = None) -> Console:
    async def address() -> str:
        await trio.lowlevel.checkpoint()
        return "http://127.0.0.1:7337"

    return Console(operator_context(Stage()), address=address, match=match)


@pytest.mark.parametrize("may_change", [True, False])
async def test_a_link_leads_to_the_pages(may_change: bool) -> None:
    console = a_console()
    link = urlsplit(await console.link(may_change=may_change))
    assert (link.netloc, link.path, list(parse_qs(link.query))) == ("127.0.0.1:7337", "/ui/enter", ["once"])
    browser = Browser(console)
    assert not console.knows({"host": HOST, "cookie": "mcpd_console_7337=x"})
    assert (await browser.get(f"{link.path}?{link.query}")).status == 200
    assert console.knows({"host": HOST, "cookie": f"a=b; mcpd_console_7337={browser.cookie}"})
    assert not console.knows({})
    assert console.end_all() == 1
    assert not console.knows({"host": HOST, "cookie": f"mcpd_console_7337={browser.cookie}"})


async def test_a_token_that_may_see_the_console_signs_in() -> None:
    console = a_console(TOKENS.get)
    cookie, delay = console.sign_in("of-a-reader", "192.0.2.1")
    assert cookie is not None
    assert delay == 0
    browser = Browser(console)
    browser.cookie = cookie
    assert console.knows({"host": HOST, "cookie": f"__Host-mcpd_console_7337={cookie}"})
    console.revoked("me")
    assert console.knows({"host": HOST, "cookie": f"mcpd_console_7337={cookie}"})
    console.revoked("wall")
    assert not console.knows({"host": HOST, "cookie": f"mcpd_console_7337={cookie}"})


def test_tokens_for_clients_and_wrong_ones_do_not_and_wait_longer_each_time() -> None:
    console = a_console(TOKENS.get)
    told = [console.sign_in(token, "192.0.2.1") for token in ("of-a-client", "wrong", "")]
    assert [cookie for cookie, _delay in told] == [None] * 3
    assert [delay for _cookie, delay in told] == [0.0, 0.25, 0.5]
    assert console.sign_in("of-an-operator", "192.0.2.1")[0] is not None


def test_where_there_are_no_tokens_none_signs_in() -> None:
    assert a_console().sign_in("of-an-operator", "192.0.2.1")[0] is None
