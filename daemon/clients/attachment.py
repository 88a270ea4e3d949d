"""Ties one session to one connection: the session's view, loaded tools and server instances there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import attrs
import msgspec
from msgspec import Struct

from daemon.catalog.loaded import MAX_LOADED, Source
from daemon.catalog.naming import app_link
from daemon.catalog.offer import Offered
from daemon.catalog.shown import Shown, shown_since
from daemon.catalog.snapshot import Catalog
from daemon.clients.client import Client, Selection
from daemon.clients.context import SessionContext
from daemon.clients.server_requests import declared_in, has
from daemon.clients.sessions import SessionState
from daemon.config.config_model import USUAL, Profile
from daemon.errors import CallError, ToolDisabled
from daemon.kit.waiting import keep_latest
from daemon.model import ToolKey
from daemon.ports import Holder, Upstream
from daemon.protocol import CALL_TOOL, UI, decoded
from daemon.surfaces.answers import with_text
from daemon.surfaces.surface import Forward, Loading, Surface, View
from daemon.wire.envelope import Buffer

MAX_LINKS = 1000
"""Links kept for one session, the newest ones: a model reads resources that it has just seen."""

MAX_OWNERS = 64
"""Principals without sessions whose links are kept, the latest ones: about one for each token."""

MAX_SEARCHED = 256 * 1024
"""Bytes of the longest result searched for links, in a millisecond; a thousand links need fewer bytes."""

LONGEST = 4096
"""Characters of the longest URI kept: a server may link to a thousand of them."""

MARKERS = (b'"resource', b'"contents"')
"""Every result with links holds a marker: content `resource` or `resource_link`, a read `contents`."""


def note_links(links: dict[str, str], server: str, uris: Iterable[str]) -> None:
    """Record that a server has linked to these URIs; `links` maps URIs to servers, the newest last."""
    for uri in uris:
        keep_latest(links, uri, server, MAX_LINKS)


def links_of(principals: dict[tuple[str, str], dict[str, str]], owner: str, profile: str) -> dict[str, str]:
    """The links of all clients of a principal and profile without sessions: mcpd cannot tell them apart."""
    links = principals.get((owner, profile), {})
    keep_latest(principals, (owner, profile), links, MAX_OWNERS)
    return links


def linked_in(result: Buffer) -> tuple[str, ...]:
    """The URIs of resources in a result: links, embedded resources, contents that were read, an app's page."""
    if len(result) > MAX_SEARCHED:
        return ()
    raw = bytes(result)
    if not any(marker in raw for marker in MARKERS):
        return ()
    found = decoded(msgspec.json.decode, raw)
    named = (
        *map(_named_by, _objects_in(found, "content")),
        *(_named_by(each.get("content")) for each in _objects_in(found, "messages")),
        *(each.get("uri") for each in _objects_in(found, "contents")),
        app_link(found.get("_meta") if isinstance(found, dict) else None).page,
    )
    return tuple(uri for uri in named[:MAX_LINKS] if isinstance(uri, str) and 0 < len(uri) < LONGEST)


def _objects_in(found: object, key: str) -> list[dict[str, object]]:
    listed = found.get(key) if isinstance(found, dict) else None
    return listed if isinstance(listed, list) and all(isinstance(each, dict) for each in listed) else []


def _named_by(block: object) -> object:
    if not isinstance(block, dict):
        return None
    embedded = block.get("resource")
    if block.get("type") == "resource_link":
        return block.get("uri")
    return embedded.get("uri") if block.get("type") == "resource" and isinstance(embedded, dict) else None


@attrs.define(eq=False)
class SessionInstances:
    """The server instances that serve one session over one connection."""

    _client: Client
    _state: SessionState
    _context: SessionContext
    known: dict[str, tuple[Upstream, int]] = attrs.field(factory=dict, init=False)
    """The instance of each server, with the version of the workspace for which it was found."""
    losses: dict[str, str] = attrs.field(factory=dict, init=False)
    """The reason why each server's previous instance ended, until the next answer reports the loss."""

    def of(self, upstream: Upstream) -> Upstream | None:
        """The session's instance; None if its workspace must be found first. Raises CallError without one."""
        assert upstream.instances is not None
        client, workspace = self._client, self._client.workspace
        known = self.known.get(upstream.of)
        if known is not None and known[1] == workspace.version and not known[0].is_gone:
            return known[0]
        self.forget_gone()
        if not workspace.is_known:
            return None
        try:
            found = upstream.instances.of(holder := self._holder())
        except CallError:
            if workspace.fault:
                # The client may correct the workspace, which is then read again.
                workspace.changed()
            raise
        self.known[upstream.of] = found, workspace.version
        if loss := upstream.instances.take_loss(holder):
            self.losses[upstream.of] = loss
        client.uses(found)
        # Wanted log levels and subscriptions of the instance now depend on this client, too.
        self._context.subscribers.refresh_wishes(found.name)
        # The call was judged by the server's list, from which the instance's may differ.
        catalog = self._context.catalog.value
        return found if found.own_catalog(catalog) is catalog else None

    def telling(self, forward: Forward) -> Forward:
        """Have the answer to a call report what the session lost with the server's previous instance."""
        if forward.server not in self.losses or forward.method != CALL_TOOL:
            return forward
        return attrs.evolve(forward, convert=partial(self._tell_loss, forward))

    def _tell_loss(self, forward: Forward, result: Buffer) -> bytes:
        server = forward.server
        plain = bytes(result) if forward.convert is None else forward.convert(result)
        # The answer of another call in flight may have reported it.
        why = self.losses.get(server)
        if why is None:
            return plain
        text = (
            f"mcpd: {server} was started again for this session (it had ended {why}); its state (pages, open"
            " files, memory) is lost."
        )
        told = with_text(text, plain)
        if told != plain:
            del self.losses[server]
        return told

    def own_catalog(self, catalog: Catalog) -> Catalog:
        """The catalog with the lists of the session's own instances."""
        for instance, _version in self.known.values():
            if not instance.is_gone:
                catalog = instance.own_catalog(catalog)
        return catalog

    def _holder(self) -> Holder:
        client, workspace = self._client, self._client.workspace
        has_session = client.principal.keeps or self._state.key is not None
        return Holder(
            session=self._state.identity if has_session else None,
            number=client.number,
            owner=client.principal.owner,
            workspace=workspace.directory,
            fault=workspace.fault,
            capabilities=declared_in(client.capabilities) if has_session else None,
        )

    async def find(self, upstream: Upstream, request_id: bytes | None) -> Upstream:
        """The server, or the session's instance of a divided server. Raises CallError without an instance."""
        if upstream.instances is None:
            return upstream
        while (found := self.of(upstream)) is None:
            await self._client.workspace.find(request_id)
        return found

    async def find_all(
        self, servers: Iterable[str], request_id: bytes | None, *, strictly: bool
    ) -> list[Upstream]:
        """The running servers, or the session's instances. If `strictly`, a missing one raises CallError."""
        found = []
        for server in servers:
            if (upstream := self._context.upstreams.get(server)) is not None:
                try:
                    found.append(await self.find(upstream, request_id))
                except CallError:
                    if strictly:
                        raise
        return found

    def forget_gone(self) -> None:
        """Drop instances that have ended: an idle client would keep them in memory."""
        for server in [name for name, (each, _version) in self.known.items() if each.is_gone]:
            del self.known[server]
            # The directory may be the cause, or may have gone with it.
            self._client.workspace.changed()


class Request(Struct, frozen=True, kw_only=True):
    """A request that depends on a session; a msgspec struct, because each call makes one."""

    id: bytes
    """Raw JSON."""
    session: Attachment
    client: str
    profile: Profile
    surface: Surface
    key: str | None
    """The session's key; None if the session belongs to the connection and is not stored."""
    modern: bool = False
    turn: int = 0

    @property
    def present_surface(self) -> Surface:
        """The surface that serves the request now: an operator may have moved the client meanwhile."""
        selection = self.session.selection
        return selection.surface if selection.client == self.client else self.surface


@attrs.define(eq=False)
class Attachment:
    """One session over one connection."""

    _client: Client
    state: SessionState
    _context: SessionContext
    _turn: Callable[[], int] = lambda: 0
    instances: SessionInstances = attrs.field(init=False)
    _shown: Shown = attrs.field(init=False)
    _view: View | None = attrs.field(default=None, init=False)
    """The last view, if later turns may use it."""
    _seen: tuple[object, ...] = attrs.field(default=(), init=False)
    _found: tuple[int, frozenset[ToolKey]] = attrs.field(default=(0, frozenset()), init=False)
    """A turn, and the tools that searches have listed in it."""
    _preloaded: tuple[Catalog, Profile] | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.instances = SessionInstances(self._client, self.state, self._context)
        self._shown = Shown(self._shown_before)

    @property
    def name(self) -> str:
        """The session in records and events: a key that its client has chosen, or a number such as `#12`."""
        return (self.state.key if self.state.named else None) or f"#{self._client.number}"

    @property
    def selection(self) -> Selection:
        """The client's selection under the present configuration."""
        client, config = self._client, self._context.catalog.value.config
        return client.selection if client.config is config else client.select(config)

    @property
    def links(self) -> dict[str, str]:
        """Maps each URI that the session's results have linked to, to its server."""
        principal = self._client.principal
        if principal.keeps or self.state.key is not None:
            return self.state.links
        return links_of(self._context.links, principal.owner, self.selection.profile.name)

    def request(self, request_id: bytes, turn: int, *, modern: bool = False) -> Request:
        """Make the request that arrived in a turn."""
        selection = self.selection
        return Request(
            id=request_id,
            session=self,
            client=self._client.name,
            profile=selection.profile,
            surface=selection.surface,
            key=self.state.key,
            modern=modern,
            turn=turn,
        )

    def view(self, turn: int | None = None) -> View:
        """The view of the session's requests: the same object while its inputs stay the same.

        `turn` is the turn of a request, whose model has not seen anything shown later; None means now. Raises
        ToolDisabled if the profile was removed from the configuration while the request waited.
        """
        catalog, state = self._context.catalog.value, self.state
        if self.instances.known:
            catalog = self.instances.own_catalog(catalog)
        lasts = turn is None or turn > self._shown.latest
        if lasts and self._view is not None:
            seen_catalog, loaded, wishes, shown, before, capabilities = self._seen
            if (
                seen_catalog is catalog
                and capabilities is self._client.capabilities
                and loaded is state.loaded
                and wishes is self._client.wishes
                and shown == self._shown.version
                and before == state.shown.version
            ):
                return self._view
        return self._new_view(turn, lasts=lasts)

    def _new_view(self, turn: int | None, *, lasts: bool) -> View:
        context, client, state = self._context, self._client, self.state
        catalog = self.instances.own_catalog(context.catalog.value)
        selection = client.select(catalog.config)
        if turn is not None and selection.denied:
            raise ToolDisabled(selection.denied)
        seen = context.services.offers.choices.of(catalog, selection.servers, selection.elsewhere)
        view = View(
            catalog=seen,
            profile=selection.profile,
            now=context.wall,
            services=context.services,
            linked=self.links,
            keeps=False,
            apps=has(client.capabilities, "extensions", UI),
        )
        if self._is_kept:
            self._judge(seen)
            view = attrs.evolve(
                view,
                keeps=True,
                loaded=state.loaded,
                shown=partial(self._shown.hash_of, turn=turn) if client.principal.keeps else self._shown_before,
                usual=partial(client.core_tools, context.services, seen),
            )
        if lasts and not selection.denied:
            self._view = view
            seen_by = client.wishes, self._shown.version, state.shown.version, client.capabilities
            self._seen = catalog, state.loaded, *seen_by
        return view

    def forget_stale(self) -> None:
        """Drop a view of an earlier catalog: an idle client would keep it in memory."""
        self.instances.forget_gone()
        catalog = self._context.catalog.value
        if self._seen and self._seen[0] is not catalog:
            self._view, self._seen = None, ()
        if self._preloaded is not None and self._preloaded[0] is not catalog:
            self._preloaded = None

    def _judge(self, seen: Catalog) -> None:
        context, state, selection = self._context, self.state, self._client.selection
        context.sessions.judge(state)
        catalog, profile, known = context.catalog.value, selection.profile, self._preloaded
        if not selection.preload or (known is not None and known[0] is catalog and known[1] is profile):
            return
        self._preloaded = catalog, profile
        offer = context.services.offers.of(seen, profile)
        wanted = [offer.find(name) for name in selection.preload[:MAX_LOADED] if name != USUAL]
        if USUAL in selection.preload:
            wanted += map(offer.tools.get, self._client.core_tools(context.services, seen))
        # A loaded tool that has changed is judged like any other and not reloaded unasked.
        tools = [
            (each.tool, catalog.servers[each.tool.server].epoch)
            for each in wanted
            if each is not None and each.key not in state.loaded
        ]
        context.sessions.load(state, tools, Source.POLICY_PRELOAD)

    def _shown_before(self, key: ToolKey) -> str | None:
        began = self._client.began
        if began is None:
            known = self.state.shown.hash_of(key)
            began = self.state.began
            if known is not None or began is None:
                return known
        return shown_since(self._context.catalog.value, key, began)

    @property
    def _is_kept(self) -> bool:
        client = self._client
        return client.selection.on_demand and (client.principal.keeps or self.state.key is not None)

    def load(self, loading: Loading) -> None:
        """Add the tools that a call has loaded to the session's list."""
        if not self._is_kept:
            return
        view, leaving = self.view(), loading.leaving
        tools = [
            (offered.tool, view.catalog.servers[offered.tool.server].epoch)
            for key in loading.tools
            if (offered := view.offer.tools.get(key)) is not None
        ]
        if leaving is not None:
            turn, found = self._found
            if turn != self._turn():
                turn, found = self._turn(), frozenset()
            # The results of a search in the same turn were not seen before this request.
            leaving = tuple(key for key in leaving if key not in found)
            self._found = turn, found.union(loading.tools)
        self._context.sessions.load(self.state, tools, loading.source, leaving)

    def was_shown(self, keys: Iterable[ToolKey]) -> None:
        """Record that the client was shown these tools in their present definition."""
        if not self._is_kept:
            return
        servers = self._context.catalog.value.servers
        tools = [
            tool
            for server, name in keys
            if server in servers and (tool := (servers[server].tools or {}).get(name)) is not None
        ]
        self._shown.add(tools, self._turn())
        self.state.shown.add(tools)

    def was_listed(self, page: Iterable[Offered], view: View, *, whole: bool) -> None:
        """Record that a list has shown these tools; `whole` if the page holds every tool of the profile."""
        if not self._is_kept:
            return
        if whole:
            self._shown.add_list(view.offer.table, self._turn())
            self.state.shown.add_list(view.offer.table)
        else:
            tools = [offered.tool for offered in page]
            self._shown.add(tools, self._turn())
            self.state.shown.add(tools)

    def was_told(self, key: ToolKey, *, unloads: bool = False) -> None:
        """Record that the model has learned how a tool changed; `unloads` if the model must load it again."""
        known = self.state.loaded.tools.get(key)
        if known is not None:
            self._shown.assume(key, known.schema_hash)
        self.was_shown((key,))
        if known is not None and not unloads:
            self.load(Loading(tools=(key,), source=known.source))
