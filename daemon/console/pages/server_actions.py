"""What can be done to a server on its page, each by the operator command that `mcpd` gives, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.console.page import ConsoleAction
from daemon.kit.wording import counted
from daemon.operators.login import LOGIN, LOGIN_ANSWER, LoginAnswerParams, LoginParams
from daemon.operators.logout import LOGOUT, LogoutParams
from daemon.operators.refresh import REFRESH, RefreshParams
from daemon.operators.restart import RESTART, RestartParams
from daemon.operators.switch import SWITCH, SwitchParams
from daemon.states import ServerState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.console.page import Viewer


async def _restart(viewer: Viewer, fields: Mapping[str, str]) -> str:
    name = fields.get("instance") or viewer.path["server"]
    return _state(name, await RESTART.run(viewer.context, RestartParams(name)), done="restarted")


async def _refresh(viewer: Viewer, fields: Mapping[str, str]) -> str:
    name = fields.get("instance") or viewer.path["server"]
    told = await REFRESH.run(viewer.context, RefreshParams(name))
    assert isinstance(told, dict)
    return " ".join(_news(each, seen) for each, seen in told["servers"].items())


async def _enable(viewer: Viewer, _fields: Mapping[str, str]) -> str:
    return await _switch(viewer, off=False)


async def _disable(viewer: Viewer, _fields: Mapping[str, str]) -> str:
    return await _switch(viewer, off=True)


async def _login(viewer: Viewer, fields: Mapping[str, str]) -> str:
    params = LoginParams(viewer.path["server"], device=bool(fields.get("device")), wait=False)
    await LOGIN.run(viewer.context, params)
    return f"A login to {viewer.path['server']} is under way: open the page that is shown here."


async def _login_answer(viewer: Viewer, fields: Mapping[str, str]) -> str:
    params = LoginAnswerParams(viewer.path["server"], fields.get("url", "").strip())
    await LOGIN_ANSWER.run(viewer.context, params)
    return "The address was handed to the login; its outcome shows here."


async def _logout(viewer: Viewer, _fields: Mapping[str, str]) -> str:
    told = await LOGOUT.run(viewer.context, LogoutParams(viewer.path["server"]))
    assert isinstance(told, dict)
    what = "Logged out" if told["existed"] else "There was no login to end"
    return f"{what}. {_state(viewer.path['server'], told)}"


SERVER_ACTIONS = (
    ConsoleAction(path="/servers/{server}/restart", act=_restart),
    ConsoleAction(path="/servers/{server}/refresh", act=_refresh),
    ConsoleAction(path="/servers/{server}/enable", act=_enable),
    ConsoleAction(path="/servers/{server}/disable", act=_disable),
    ConsoleAction(path="/servers/{server}/login", act=_login),
    ConsoleAction(path="/servers/{server}/login-answer", act=_login_answer),
    ConsoleAction(path="/servers/{server}/logout", act=_logout),
)


async def _switch(viewer: Viewer, *, off: bool) -> str:
    name = viewer.path["server"]
    told = await SWITCH.run(viewer.context, SwitchParams(name, off))
    assert isinstance(told, dict)
    note = f" {told['note']}." if told["note"] else ""
    if off and told.get("state") == ServerState.DISABLED:
        return f"{name} is switched off.{note}"
    return f"{_state(name, told, done='switched off' if off else 'switched on')}{note}"


def _state(name: str, told: object, *, done: str = "") -> str:
    """A sentence about the state that a command has reported."""
    assert isinstance(told, dict)
    reason = f": {told['reason']}" if told.get("reason") else ""
    state = told.get("state") or "gone"
    if not done:
        return f"{name} is {state}{reason}."
    return f"{name} was {done} and is {state}{reason}."


def _news(name: str, seen: Mapping[str, Any]) -> str:
    if seen.get("problem"):
        return f"{name}: {seen['problem']}."
    news = {word: seen[word] for word in ("came", "went", "changed")}
    parts = [f"{len(names)} {word}" for word, names in news.items() if names]
    return f"{name} has listed {counted(seen['tools'], 'tool')}: {', '.join(parts) or 'nothing has changed'}."
