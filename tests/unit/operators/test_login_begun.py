"""A login that nobody waits for: the answer is the page to open, and it goes on."""

import pytest

from daemon.authorization.login_runs import LoginRun
from daemon.authorization.logins import DeviceCode, Failed, LoginPage, Wish
from daemon.config.config_model import Server
from daemon.operators.base import Refused
from daemon.operators.login_commands import LoginParams, login
from tests.fakes_upstream import Stage
from tests.unit.config.reading import config_of
from tests.unit.operators.stage import operator_context


class OneLogin:
    """Every login is this one."""

    def __init__(self) -> None:
        wish = Wish(server="alpha", url="https://x.example/mcp", directory="/")
        self.run = LoginRun(wish)

    async def join(self, _server: Server, *, scope: str | None, device: bool) -> LoginRun:
        assert (scope, device) == (None, False)
        self.run.join()
        return self.run


async def begun(logins: OneLogin) -> object:
    servers = {"alpha": {"url": "https://x.example/mcp"}}
    context = operator_context(Stage(config_of({"mcpServers": servers})), logins=logins)
    return await login(context, LoginParams("alpha", seconds=1, wait=False))


@pytest.mark.parametrize(
    ("page", "told"),
    [
        (LoginPage(url="https://as/", redirect="http://r/"), {"kind": "link", "redirect": "http://r/"}),
        (DeviceCode(url="https://as/", code="AB", complete_url=""), {"kind": "device", "code": "AB"}),
    ],
)
async def test_a_page_is_told_and_the_login_goes_on(page: LoginPage | DeviceCode, told: dict[str, str]) -> None:
    logins = OneLogin()
    logins.run.show(page)
    answer = await begun(logins)
    assert isinstance(answer, dict)
    assert {**answer, **told, "server": "alpha", "url": "https://as/"} == answer
    assert logins.run.outcome is None


async def test_a_login_without_a_page_is_refused(autojump_clock: object) -> None:
    logins = OneLogin()
    with pytest.raises(Refused, match=r"no command waits|no page"):
        await begun(logins)
    assert isinstance(logins.run.outcome, Failed)


async def test_why_it_has_ended_is_said() -> None:
    logins = OneLogin()
    logins.run.end(Failed("the server wants none"))
    with pytest.raises(Refused, match="the server wants none"):
        await begun(logins)
