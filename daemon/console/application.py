"""The console as an ASGI application, which the first request loads in a thread.

Without a session it serves only static files, sign-in links and the form for tokens. Every change needs the
form token of its session. Streams send a page's changes as server-sent events (HTML Standard, 9.2).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlencode

import msgspec
import trio
from loguru import logger
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Match, Route

from daemon.audit.event_records import note_command
from daemon.console.access import (
    ConsoleSession,
    ConsoleSessions,
    cookie_in,
    refuse_foreign,
    refuse_foreign_form,
    secured,
    set_cookie,
)
from daemon.console.changes import faults
from daemon.console.live import LiveView, Snapshot, Views
from daemon.console.page import ConsoleAction, ConsolePage, Holders, Notice, Viewer, part
from daemon.console.pages.adding_pages import typed_faults
from daemon.console.pages.page_table import ACTIONS, PAGES
from daemon.console.pages.server_pages import in_trouble
from daemon.console.pages.tool_pages import MAX_ARGUMENTS
from daemon.console.rendering import Rendering, sent, sent_in_json
from daemon.errors import McpdError
from daemon.operators.news import waiting
from daemon.safety.escape import visible

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from daemon.operators.base import OperatorContext

    Tell = Callable[[str], Awaitable[None]]

COMMENT_SECONDS = 15.0
"""Seconds after which a quiet stream sends a comment, so that proxies and browsers keep it open."""


MAX_STREAMS = 64
"""Live pages that may be open: a browser has a few."""


AT_ONCE = 4
"""Pages computed at a time: with ten thousand tools, each takes up to 25 ms of the loop."""


RETRY = "retry: 2000\n\n"
"""Tells browsers to reconnect two seconds after a stream breaks, as at a restart of the daemon."""


COMMENT = ": nothing has changed\n\n"


OVER = "event: over\ndata: {}\n\n"
"""Tells a browser not to reconnect, because the session has ended or the page is gone."""


MAX_FIELDS = 2 * MAX_ARGUMENTS
"""Fields of the largest query or form: a tool's form has one for each argument, and a few others."""


SIGNED_OUT_AT_A_TIME = 1
"""Pages without a session served at a time: each takes a thread 2 ms, and anyone may request one."""


FORM = "application/x-www-form-urlencoded"


SEE_OTHER, BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, WRONG_TYPE, FAULT, BUSY = (
    303, 400, 401, 403, 404, 415, 500, 503
)  # fmt: skip


class Application:
    """Serves the requests of browsers."""

    def __init__(
        self,
        context: OperatorContext,
        sessions: ConsoleSessions,
        views: Views,
        sign_in: Callable[[str, str], tuple[str | None, float]] | None,
        *,
        pages: Sequence[ConsolePage] = PAGES,
        actions: Sequence[ConsoleAction] = ACTIONS,
    ) -> None:
        """Reads templates and static files; blocks. `sign_in` returns a cookie, or None and a delay in s."""
        self._context = context
        self._sessions = sessions
        self._sign_in_with = sign_in
        self._rendering = Rendering()
        self._at_a_time = trio.CapacityLimiter(SIGNED_OUT_AT_A_TIME)
        self._streams = LiveStreams(views, sessions, self._rendering)
        self._pages = [(Route(f"/ui{page.path}", partial(self._page, page)), page) for page in pages]
        self._navigation = [page for page in pages if page.in_navigation]
        made = Starlette(
            routes=[
                *([Route("/ui", partial(self._page, pages[0]))] if pages else ()),
                *(route for route, _page in self._pages),
                *(Route(f"/ui{each.path}", partial(self._act, each), methods=["POST"]) for each in actions),
                Route("/ui/", _to_start),
                Route("/ui/live", self._live),
                Route("/ui/check", self._check, methods=["POST"]),
                Route("/ui/enter", self._enter),
                Route("/ui/sign-in", self._sign_in, methods=["GET", "POST"]),
                Route("/ui/sign-out", self._sign_out, methods=["POST"]),
                Route("/ui/static/{digest}/{name}", self._static),
            ],
            exception_handlers={HTTPException: self._refused, Exception: self._refused},
        )
        made.router.redirect_slashes = False
        self.serve = secured(made)

    # --- coming in -----------------------------------------------------------------------------------------

    async def _enter(self, request: Request) -> Response:
        if request.method != "GET" or "prefetch" in request.headers.get("sec-purpose", ""):
            return Response(status_code=FORBIDDEN)  # A prefetch, not a click.
        cookie = self._sessions.enter(request.query_params.get("once", ""))
        if cookie is None:
            text = "This link was used already, or is older than a minute. `mcpd ui` makes another one."
            raise HTTPException(FORBIDDEN, text)
        # No redirect: the browser would attribute it to the link's page, and send no cookie.
        response = HTMLResponse(await self._bare("entered.html", {}))
        set_cookie(response, request, cookie)
        return response

    async def _sign_in(self, request: Request) -> Response:
        if request.method != "POST":
            return HTMLResponse(await self._bare("sign_in.html", {"problem": ""}))
        form = await _form(request)
        refuse_foreign_form(request, form, None)
        if self._sign_in_with is None:
            raise HTTPException(NOT_FOUND)
        address = request.client.host if request.client is not None else ""
        cookie, delay = self._sign_in_with(form.get("token", "").strip(), address)
        if cookie is None:
            await trio.sleep(delay)
            problem = "This token is not valid for the console."
            return HTMLResponse(await self._bare("sign_in.html", {"problem": problem}), UNAUTHORIZED)
        response = RedirectResponse("/ui", SEE_OTHER)
        set_cookie(response, request, cookie)
        return response

    async def _sign_out(self, request: Request) -> Response:
        session = self._session(request)
        refuse_foreign_form(request, await _form(request), session)
        self._sessions.end(session)
        response = RedirectResponse("/ui/sign-in", SEE_OTHER)
        set_cookie(response, request, "")
        return response

    def _session(self, request: Request) -> ConsoleSession:
        refuse_foreign(request)
        session = self._sessions.find(cookie_in(request.headers, tls=request.url.scheme == "https"))
        if session is None:
            raise HTTPException(UNAUTHORIZED)
        return session

    # --- pages and what is done on them --------------------------------------------------------------------

    async def _page(self, page: ConsolePage, request: Request) -> Response:
        session = self._session(request)
        viewer = self._viewer(session, request.path_params, request.url.query)
        here = "?".join(filter(None, (request.url.path, request.url.query)))
        try:
            snapshot = await drawn(page, viewer, self._rendering)
            own = await page.own(viewer) if page.own is not None else {}
        except McpdError as error:
            raise HTTPException(NOT_FOUND, str(error)) from None
        name = self._streams.views.keep((page, here, session.may_change), snapshot)
        # Others do not see it: they follow the other snapshot.
        if typed := session.typed.get(here, {}):
            snapshot = await drawn(page, msgspec.structs.replace(viewer, typed=typed), self._rendering)
        values = {
            "pages": self._navigation,
            "who": session.who,
            "may_change": session.may_change,
            "version": self._context.facts.version,
            "page": page,
            "title": page.title,
            "path": viewer.path,
            "query": viewer.query,
            "notices": session.take_notices(),
            **own,
            "typed": typed,
            "live": urlencode({"at": here, "since": name}),
        }
        html = await trio.to_thread.run_sync(self._rendering.page, page.template, snapshot, values)
        return HTMLResponse(sent(html, session.form_token, here))

    async def _wish(self, request: Request) -> tuple[ConsoleSession, dict[str, str]]:
        session, form = self._session(request), await _form(request)
        refuse_foreign_form(request, form, session)
        if not session.may_change:
            raise HTTPException(FORBIDDEN, "You may look at everything here and change nothing.")
        return session, form

    async def _check(self, request: Request) -> Response:
        _session, form = await self._wish(request)
        check = typed_faults if "what" in form else faults
        found = await trio.to_thread.run_sync(check, self._context.facts, form)
        return HTMLResponse(await self._bare("check.html", {"faults": found, "redact": self._context.redact}))

    async def _act(self, action: ConsoleAction, request: Request) -> Response:
        session, form = await self._wish(request)
        viewer = self._viewer(session, request.path_params, "")
        fields = {name: value for name, value in form.items() if name not in {"form_token", "back"}}
        back = self._back(form.get("back", ""))
        if "again" in fields:
            fields = {**session.typed.get(back, {}), **fields}
        logger.info("console: {}: {}", session.who, visible(unquote(request.url.path)))
        did, notice, outcome = action.path.rpartition("/")[2], Notice(""), "internal error"
        try:
            told = await action.act(viewer, fields)
            notice = Notice(told) if isinstance(told, str) else told
            outcome = "failed" if notice.is_error else "ok"
        except McpdError as error:
            notice, outcome = Notice(str(error), is_error=True), "refused"
        finally:
            # One that is cut off midway may have done its work.
            about = {"server": notice.server, **request.path_params}
            note_command(self._context.audit, session.who, did, about, outcome)
        session.tell(notice)
        if action.keeps:
            session.typed = {} if notice.leads_to else {back: fields}
        return RedirectResponse(f"/ui{notice.leads_to}" if notice.leads_to else back, SEE_OTHER)

    def _back(self, wanted: str) -> str:
        """The page to show after an action: that of its form, but never a foreign address."""
        return wanted if self._match(wanted.partition("?")[0]) is not None else "/ui"

    def _match(self, path: str) -> tuple[ConsolePage, Mapping[str, str]] | None:
        if path == "/ui" and self._pages:
            return self._pages[0][1], {}
        for route, page in self._pages:
            match, found = route.matches({"type": "http", "method": "GET", "path": path, "root_path": ""})
            if match is Match.FULL:
                return page, found["path_params"]
        return None

    def _viewer(self, session: ConsoleSession, path: Mapping[str, str], query: str) -> Viewer:
        try:
            fields = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_FIELDS))
        except ValueError:
            raise HTTPException(BAD_REQUEST, "This address has too many fields.") from None
        return Viewer(
            context=msgspec.structs.replace(self._context, principal=session.who),
            may_change=session.may_change,
            query=fields,
            path={name: unquote(value) for name, value in path.items()},
            last=session.last,
        )

    # --- live ----------------------------------------------------------------------------------------------

    async def _live(self, request: Request) -> ASGIApp:
        session = self._session(request)
        here = request.query_params.get("at", "")
        path, _, query = here.partition("?")
        found = self._match(path)
        if found is None:
            raise HTTPException(NOT_FOUND, "There is no such page.")
        if request.method != "GET":
            return Response(media_type="text/event-stream")
        if self._streams.full:
            raise HTTPException(BUSY, f"{MAX_STREAMS} pages are kept up to date already.")
        page, parameters = found
        viewer = self._viewer(session, parameters, query)
        since = request.query_params.get("since", "")

        async def stream(_scope: Scope, _receive: Receive, send: Send) -> None:
            async def tell(text: str) -> None:
                await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

            headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._streams.run(tell, session, page, viewer, here=here, since=since)

        return stream

    # --- the rest ------------------------------------------------------------------------------------------

    async def _static(self, request: Request) -> Response:
        found = self._rendering.static.get(request.url.path)
        if found is None:
            raise HTTPException(NOT_FOUND)
        headers = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(found.content, media_type=found.kind, headers=headers)

    async def _refused(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            error = HTTPException(FAULT, "Internal error in mcpd: its log says more (`mcpd logs`).")
        if error.status_code == UNAUTHORIZED:
            return HTMLResponse(await self._bare("sign_in.html", {"problem": ""}), UNAUTHORIZED)
        text = "There is no such page." if error.detail == "Not Found" else error.detail
        html = await self._bare(
            "error.html", {"status": error.status_code, "text": text, "pages": self._navigation}
        )
        return HTMLResponse(html, error.status_code, error.headers)

    async def _bare(self, template: str, values: Mapping[str, object]) -> str:
        about = {"takes_tokens": self._sign_in_with is not None, **values}
        page = partial(self._rendering.page, template, None, about)
        return await trio.to_thread.run_sync(page, limiter=self._at_a_time)


async def _to_start(_request: Request) -> Response:
    return RedirectResponse("/ui", SEE_OTHER)


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form. Raises HTTPException if the body is not a form."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise HTTPException(WRONG_TYPE, "This form was sent in an unknown format.")
    try:
        body = (await request.body()).decode()
        return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError:
        raise HTTPException(BAD_REQUEST, "This form cannot be read.") from None


async def drawn(
    page: ConsolePage, viewer: Viewer, rendering: Rendering, before: Snapshot | None = None
) -> Snapshot:
    """Draw those fragments that changed since `before`. Raises McpdError if the page's subject is gone."""
    replaced = await trio.to_thread.run_sync(viewer.context.facts.replaced)
    holders = {**_in_header(viewer.context, replaced=replaced), **await page.fragments(viewer)}
    draw = partial(rendering.fragment, may_change=viewer.may_change)
    return await trio.to_thread.run_sync(Snapshot.drawn, holders, draw, before)


def _in_header(context: OperatorContext, *, replaced: bool) -> Holders:
    """The header's numbers of definitions that wait for approval, and of available and disabled servers."""
    servers = context.catalog.servers
    off = sum(entry.disabled for entry in servers.values())
    available = sum(entry.of_use for entry in servers.values())
    troubled = [(name, str(servers[name].status.state)) for name in in_trouble(servers)]
    waits = len(waiting(*servers.values()))
    return {
        "masthead": [
            part(
                "servers-available",
                "masthead",
                available=available,
                total=len(servers),
                off=off,
                troubled=troubled,
                replaced=replaced,
            )
        ],
        "badge": [part("approvals-badge", count=waits)] if waits else [],
    }


class LiveStreams:
    """The streams of live pages that are open."""

    def __init__(self, views: Views, sessions: ConsoleSessions, rendering: Rendering) -> None:
        self.views = views
        self._sessions = sessions
        self._rendering = rendering
        self._open = 0
        self._computing = trio.CapacityLimiter(AT_ONCE)

    @property
    def full(self) -> bool:
        """Whether no more streams may be opened."""
        return self._open >= MAX_STREAMS

    async def run(
        self, tell: Tell, session: ConsoleSession, page: ConsolePage, viewer: Viewer, *, here: str, since: str
    ) -> None:
        """Send a page's changes until page or session end; `tell` waits while the browser reads slowly."""

        async def compute(before: Snapshot | None) -> Snapshot:
            async with self._computing:
                return await drawn(page, viewer, self._rendering, before)

        self._open += 1
        try:
            await tell(RETRY)
            key = page, here, viewer.may_change
            async with self.views.following(key, since, compute, page.calls_every) as (view, seen):
                await self._follow(
                    view, seen, session, lambda text: tell(sent_in_json(text, session.form_token, here))
                )
        except McpdError:
            pass
        finally:
            self._open -= 1
        await tell(OVER)

    async def _follow(self, view: LiveView, seen: Snapshot | None, session: ConsoleSession, tell: Tell) -> None:
        while not self._sessions.has_ended(session):
            newest = await _next(view, seen, session)
            if newest is None:
                await tell(COMMENT)
            else:
                await tell(f"data: {msgspec.json.encode(newest.since(seen)).decode()}\n\n")
                seen = newest


async def _next(view: LiveView, seen: Snapshot | None, session: ConsoleSession) -> Snapshot | None:
    with trio.move_on_after(COMMENT_SECONDS) as scope:
        session.waits.add(scope)
        try:
            return await view.next(seen)
        finally:
            session.waits.discard(scope)
    return None
