"""`mcpd token` and `mcpd ui`: tokens that let clients in over HTTP, and links that let browsers in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import msgspec
from loguru import logger

from daemon.audit.record import acting
from daemon.config.listen import NAME_RULE, TOKEN_NAME, ConsoleRole, without_values
from daemon.errors import InvalidArguments
from daemon.kit.wording import quoted, suggestion
from daemon.operators.base import Command, OperatorContext, Refused

if TYPE_CHECKING:
    from daemon.clients.doors.http.valid_tokens import Tokens


NO_HTTP = (
    "mcpd serves no clients over HTTP, so there are no tokens: `mcpd set . listen.http={}`, then"
    " `mcpd start --restart`; or start the daemon with `mcpd run --http`"
)


class TokenParams(msgspec.Struct):
    """An action, and the token to which it applies."""

    action: Literal["list", "show", "new", "confirm", "revoke"] = "list"
    name: str | None = None
    """None for the token without a name."""
    profiles: tuple[str, ...] | None = None
    """The profiles of a new token; None for all."""
    console: ConsoleRole | None = None
    """The role of a new token's holder in the console; None for no access."""
    workspaces: tuple[str, ...] = ()
    """Globs of the directories that clients with a new token may name as workspaces."""


async def tokens(context: OperatorContext, params: TokenParams) -> dict[str, object]:
    """Change or list the tokens; raises `Refused`, `TokenTrouble` or `InvalidArguments`."""
    access, http = context.access, context.config.listen.http
    value = None
    if params.action != "list":
        if access is None:
            raise Refused(NO_HTTP)
        if params.name is None and without_values(http) is not None:
            raise Refused(
                "the configuration has tokens (listen.http.tokens), so there is no token without a name: `mcpd"
                " token list` names them, `mcpd token new NAME` makes another"
            )
        value = await _act(context, access, params)
        if params.action != "show":
            logger.info("an operator says: {} token {}", params.action, params.name or "without a name")
    return {
        "http": None if http is None else http.address,
        "value": value,
        "tokens": list(_listed(context, access)),
        "problem": "" if access is None else access.problem,
    }


async def _act(context: OperatorContext, access: Tokens, params: TokenParams) -> str | None:
    name = params.name
    if params.action == "show":
        return await access.shown_default()
    if params.action == "confirm":
        await access.confirm(name)
    elif params.action == "revoke":
        await (access.renew_default() if name is None else access.revoke(name))
    elif name is None or not TOKEN_NAME.fullmatch(name):
        raise InvalidArguments(NAME_RULE)
    else:
        known = context.config.profiles
        for profile in params.profiles or ():
            if profile not in known:
                raise InvalidArguments(f"unknown profile {quoted(profile)}{suggestion(profile, known)}")
        if any(each["name"] == name for each in without_values(context.config.listen.http) or ()):
            raise Refused(f"the configuration has a token {quoted(name)}: choose another name")
        for glob in params.workspaces:
            if not glob.startswith(("/", "~/", "*")):
                raise InvalidArguments(f"{quoted(glob)} fits no directory: begin it with /, ~/ or *")
        profiles = tuple(dict.fromkeys(params.profiles)) if params.profiles else None
        return await access.add(name, profiles, params.console, params.workspaces)
    return None


def _listed(context: OperatorContext, access: Tokens | None) -> Iterator[dict[str, object]]:
    used = {} if access is None else access.used
    for each in without_values(context.config.listen.http) or ():
        more = {
            "from": "configuration",
            "since": None,
            "counts": True,
            "lastUsed": used.get(str(each["name"] or "")),
        }
        yield {**each, **more}
    for kept, counts in () if access is None else ((access.kept, True), (access.doubted, False)):
        for name, token in kept.items():
            yield {
                "name": name or None,
                "profiles": token.profiles,
                "console": token.console,
                "workspaces": token.workspaces if name else None,
                "from": "mcpd",
                "since": token.since,
                "counts": counts,
                "lastUsed": used.get(name) if counts else None,
            }


TOKENS = Command("tokens", TokenParams, tokens)


class UiParams(msgspec.Struct, rename="camel"):
    """Asks for a link for a browser, or for the end of all sessions."""

    read_only: bool = False
    end: bool = False


async def ui(context: OperatorContext, params: UiParams) -> dict[str, object]:
    """Make a link, as `{"link": ...}`, or end all sessions, as `{"ended": NUMBER}`; raises `Refused`."""
    http = context.config.listen.http
    if context.console is None or (http is not None and not http.console):
        raise Refused('the configuration switches the console off ("listen": {"http": {"console": false}})')
    console = context.console()
    if params.end:
        return {"ended": console.end_all()}
    try:
        who = acting(None if context.operator is None else context.operator.uid, way="console")
        return {"link": await console.link(who, may_change=not params.read_only)}
    except OSError as error:
        raise Refused(f"the console cannot be served: {error.strerror or error}") from None


UI = Command("ui", UiParams, ui)
