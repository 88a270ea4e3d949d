"""Why a login does not come about, in a sentence that says what to do; of what strangers answer, codes only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.authorization.token_endpoint import OK, error_code

if TYPE_CHECKING:
    import httpx2


def not_registered(server: str, issuer: str | None, redirect: str, last: httpx2.Response | None) -> str:
    """No client was registered.

    Args:
        server: the server's name.
        issuer: the authorization server; None: no metadata of one was found.
        redirect: where the browser is to come back to.
        last: what was answered last.
    """
    if issuer is None:
        return (
            f"{server} does not say how to log in to it: it publishes no OAuth metadata. If it wants a token"
            " that you have, write that into its headers"
        )
    return (
        f"{issuer} does not register mcpd as a client{answered(last)}: register it there by hand, with the"
        f" redirect URI {redirect}, and write its clientId and that redirectPort into 'oauth' of {server}"
    )


def not_trusted(server: str, expected: str, unwell: httpx2.Response | None, *, was_asked: bool) -> str:
    """The SDK has given up over something else than a registration or a token.

    Args:
        server: the server's name.
        expected: the authorization server that was to be asked.
        unwell: an answer by which something is out of order just now; None without one.
        was_asked: whether the user was already sent there.
    """
    if was_asked:
        return (
            "the answer comes from another authorization server than the one that was asked: no code was sent"
            " to either; begin again, and see who runs them"
        )
    if unwell is not None:
        return f"{server} does not say just now how to log in to it{answered(unwell)}: try again later"
    return (
        f"the authorization server of {server} claims to be another one than {expected}, which was asked for:"
        " do not log in before whoever runs it has explained that"
    )


def not_granted(issuer: str, last: httpx2.Response | None) -> str:
    """There was no token for the code."""
    return f"{issuer} gave no token{answered(last)}: begin again"


def not_taken(server: str, issuer: str, status: int) -> str:
    """The server refuses what was granted for it."""
    return (
        f"{server} does not take the token that {issuer} has given for it (HTTP {status}): log in as somebody"
        " who may use it"
    )


def answered(last: httpx2.Response | None) -> str:
    """An answer's status and error code, for the end of a clause; empty for a success without one."""
    code = "" if last is None else error_code(last.content)
    if last is None or (last.status_code == OK and not code):
        return ""
    return f" (HTTP {last.status_code}{f', {code}' if code else ''})"
