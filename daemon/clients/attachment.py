"""A request, and the session that it works in as its connection takes part in it.

An `Attachment` tells what the requests of one session see over one connection, and records what they load and
what they are shown.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs
from msgspec import Struct

from daemon.catalog.loaded import MAX_LOADED, Source
from daemon.catalog.shown import Shown, shown_since
from daemon.clients.links import links_of
from daemon.clients.server_requests import declared_in
from daemon.config.config_model import USUAL
from daemon.errors import CallError, ToolDisabled
from daemon.ports import Holder
from daemon.protocol import CALL_TOOL
from daemon.surfaces.answers import with_text
from daemon.surfaces.surface import Loading, View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from daemon.catalog.offer import Offered
    from daemon.catalog.snapshot import Catalog
    from daemon.clients.client import Client, Selection
    from daemon.clients.context import SessionContext
    from daemon.clients.sessions import SessionState
    from daemon.config.config_model import Profile
    from daemon.model import ToolKey
    from daemon.ports import Upstream
    from daemon.surfaces.surface import Forward, Surface
    from daemon.wire.envelope import Buffer


@attrs.define(eq=False)
class SessionInstances:
    """The instances that the requests of one session go to over one connection."""

    _client: Client
    _state: SessionState
    _context: SessionContext
    known: dict[str, tuple[Upstream, int]] = attrs.field(factory=dict, init=False)
    """By server, each with the version of the workspace that it was found for."""
    losses: dict[str, str] = attrs.field(factory=dict, init=False)
    """Why the instance before the present one has ended, by server, until the next answer says so."""

    def of(self, upstream: Upstream) -> Upstream | None:
        """The instance of a server; None if the workspace must be found first, or the call judged again.

        Args:
            upstream: the server, whose clients do not share an instance.

        Raises:
            CallError: there is none for this client, as `ports.Instances.of` says.
        """
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
                # Its client may put that right, and is not to be told the same for ever.
                workspace.changed()
            raise
        self.known[upstream.of] = found, workspace.version
        if loss := upstream.instances.take_loss(holder):
            self.losses[upstream.of] = loss
        client.uses(found)
        # Which level its log has, and what is followed there, may depend on this client from now on.
        self._context.subscribers.look_at(found.name)
        # What it lists may be something else than what the call was judged by.
        catalog = self._context.catalog.value
        return found if found.own_catalog(catalog) is catalog else None

    def telling(self, forward: Forward) -> Forward:
        """Where a call goes, with an answer that says what its session has lost at that server, if anything."""
        if forward.server not in self.losses or forward.method != CALL_TOOL:
            return forward
        return attrs.evolve(forward, convert=partial(self._tell_loss, forward))

    def _tell_loss(self, forward: Forward, result: Buffer) -> bytes:
        server = forward.server
        plain = bytes(result) if forward.convert is None else forward.convert(result)
        # Another call in flight may have been answered with it.
        why = self.losses.get(server)
        if why is None:
            return plain
        text = (
            f"mcpd: {server} was started afresh for this session (it had been ended {why}); what it held"
            " (pages, files open, memory) is gone."
        )
        told = with_text(text, plain)
        if told != plain:
            del self.losses[server]
        return told

    def own_catalog(self, catalog: Catalog) -> Catalog:
        """A catalog with what its own instances list, where that is something else."""
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
        """The server, or the instance of it that requests go to.

        Args:
            upstream: the server.
            request_id: the client's request that needs it.

        Raises:
            CallError: there is none for this client, as `ports.Instances.of` says.
        """
        if upstream.instances is None:
            return upstream
        while (found := self.of(upstream)) is None:
            await self._client.workspace.find(request_id)
        return found

    async def find_all(
        self, servers: Iterable[str], request_id: bytes | None, *, strictly: bool
    ) -> list[Upstream]:
        """The servers that are there, or the instances of them that requests go to.

        Args:
            servers: their names.
            request_id: the client's request that needs them.
            strictly: whether it is of no use without all of them; otherwise those are left out that there is no
                instance of for this client.

        Raises:
            CallError: there is none of one, as `ports.Instances.of` says.
        """
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
        """Let go of instances that have ended: an idle client must not keep them in memory."""
        for server in [name for name, (each, _version) in self.known.items() if each.is_gone]:
            del self.known[server]
            # Its directory may be why, or may have gone since it was looked at.
            self._client.workspace.changed()


class Request(Struct, frozen=True, kw_only=True):
    """One request that depends on a session: made once, and shared by everything that works on it.

    A msgspec struct, because one is made for each call.
    """

    id: bytes
    """The request's id, raw JSON."""
    session: Attachment
    """The session that it belongs to, over its connection."""
    client: str
    """The name and version that its client gives."""
    profile: Profile
    """The profile that it came in under."""
    surface: Surface
    """The surface that it came in on."""
    key: str | None
    """The key of its session; None if the session belongs to the connection and what it loads is not kept."""
    modern: bool = False
    """Whether it belongs to the 2026-07-28 era."""
    turn: int = 0
    """The turn of the connection in which it arrived (`wire.outbox.Link.turns`)."""

    @property
    def present_surface(self) -> Surface:
        """The surface that decides it now: its client may have been given another profile since it came in.

        Where another client's request came in over the same connection meanwhile, it keeps its own.
        """
        selection = self.session.selection
        return selection.surface if selection.client == self.client else self.surface


@attrs.define(eq=False)
class Attachment:
    """One session as one connection takes part in it."""

    _client: Client
    state: SessionState
    """The session's state."""
    _context: SessionContext
    _turn: Callable[[], int] = lambda: 0
    """Returns the connection's present turn (`wire.outbox.Link.turns`)."""
    instances: SessionInstances = attrs.field(init=False)
    """The instances of servers that its requests go to, where clients do not share one."""
    _shown: Shown = attrs.field(init=False)
    _view: View | None = attrs.field(default=None, init=False)
    """The last view that stays valid in later turns."""
    _seen: tuple[object, ...] = attrs.field(default=(), init=False)
    """What that view was made from."""
    _found: tuple[int, frozenset[ToolKey]] = attrs.field(default=(0, frozenset()), init=False)
    """The tools that searches of one turn have listed, and that turn."""
    _preloaded: tuple[Catalog, Profile] | None = attrs.field(default=None, init=False)
    """The catalog and the profile for which tools were last preloaded."""

    def __attrs_post_init__(self) -> None:
        """Begin with a client that was shown nothing over this connection."""
        self.instances = SessionInstances(self._client, self.state, self._context)
        self._shown = Shown(self._shown_before)

    @property
    def selection(self) -> Selection:
        """What its client gets under the present configuration."""
        client, config = self._client, self._context.catalog.value.config
        return client.selection if client.config is config else client.select(config)

    @property
    def links(self) -> dict[str, str]:
        """The servers by the URIs that its results have linked to (`clients.links`)."""
        principal = self._client.principal
        if principal.keeps or self.state.key is not None:
            return self.state.links
        return links_of(self._context.links, principal.owner, self.selection.profile.name)

    def request(self, request_id: bytes, turn: int, *, modern: bool = False) -> Request:
        """Make the request that arrived in that turn."""
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
        """The view of its requests: the same object as long as nothing changes that it depends on.

        Args:
            turn: the turn of the request: its author did not know what was shown since. None is now.

        Raises:
            ToolDisabled: the request's profile has left the configuration while it waited.
        """
        catalog, state = self._context.catalog.value, self.state
        if self.instances.known:
            catalog = self.instances.own_catalog(catalog)
        lasts = turn is None or turn > self._shown.latest
        if lasts and self._view is not None:
            seen_catalog, loaded, wishes, shown, before = self._seen
            if (
                seen_catalog is catalog
                and loaded is state.loaded
                and wishes is self._client.wishes
                and shown == self._shown.version
                and before == state.shown.version
            ):
                return self._view
        return self._look(turn, lasts=lasts)

    def _look(self, turn: int | None, *, lasts: bool) -> View:
        context, client, state = self._context, self._client, self.state
        catalog = self.instances.own_catalog(context.catalog.value)
        selection = client.select(catalog.config)
        if turn is not None and selection.denied:
            raise ToolDisabled(selection.denied)
        seen = context.means.offers.choices.of(catalog, selection.servers, selection.elsewhere)
        view = View(
            catalog=seen,
            profile=selection.profile,
            now=context.wall,
            means=context.means,
            linked=self.links,
            keeps=False,
        )
        if self._is_kept:
            self._judge(seen)
            view = attrs.evolve(
                view,
                keeps=True,
                loaded=state.loaded,
                shown=partial(self._shown.hash_of, turn=turn) if client.principal.keeps else self._shown_before,
                usual=partial(client.core_tools, context.means, seen),
            )
        if lasts and not selection.denied:
            self._view = view
            self._seen = catalog, state.loaded, client.wishes, self._shown.version, state.shown.version
        return view

    def forget_stale(self) -> None:
        """Let go of a view of an earlier catalog: an idle client must not keep that in memory."""
        self.instances.forget_gone()
        catalog = self._context.catalog.value
        if self._seen and self._seen[0] is not catalog:
            self._view, self._seen = None, ()
        if self._preloaded is not None and self._preloaded[0] is not catalog:
            self._preloaded = None

    def _judge(self, seen: Catalog) -> None:
        """Judge what is loaded by the catalog, and preload what the profile names of what is seen."""
        context, state, selection = self._context, self.state, self._client.selection
        context.sessions.judge(state)
        catalog, profile, known = context.catalog.value, selection.profile, self._preloaded
        if not selection.preload or (known is not None and known[0] is catalog and known[1] is profile):
            return
        self._preloaded = catalog, profile
        offer = context.means.offers.of(seen, profile)
        wanted = [offer.find(name) for name in selection.preload[:MAX_LOADED] if name != USUAL]
        if USUAL in selection.preload:
            wanted += map(offer.tools.get, self._client.core_tools(context.means, seen))
        # A loaded tool that has changed is judged like any other, not loaded again unasked.
        tools = [
            (each.tool, catalog.servers[each.tool.server].epoch)
            for each in wanted
            if each is not None and each.key not in state.loaded
        ]
        if tools:
            context.sessions.load(state, tools, Source.POLICY_PRELOAD)

    def _shown_before(self, key: ToolKey) -> str | None:
        """How a tool was shown before this connection existed, to its client or to others of its session."""
        began = self._client.began
        if began is None:
            known = self.state.shown.hash_of(key)
            began = self.state.began
            if known is not None or began is None:
                return known
        return shown_since(self._context.catalog.value, key, began)

    @property
    def _is_kept(self) -> bool:
        """Whether what it loads and is shown is known in its next request."""
        client = self._client
        return client.selection.on_demand and (client.principal.keeps or self.state.key is not None)

    def load(self, loading: Loading) -> None:
        """List the tools that a call has loaded from now on."""
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
            # What was asked for in the same turn was not seen by anybody yet.
            leaving = tuple(key for key in leaving if key not in found)
            self._found = turn, found.union(loading.tools)
        self._context.sessions.load(self.state, tools, loading.source, leaving)

    def was_shown(self, keys: Iterable[ToolKey]) -> None:
        """Record that the client was shown these tools as they are now."""
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
        """Record that the client was given these tools in a list.

        Args:
            page: what was in the answer.
            view: the view that the list was made from.
            whole: whether that was everything that the profile offers.
        """
        if not self._is_kept:
            return
        if whole:
            self._shown.add_list(view.offer.tools, self._turn())
            self.state.shown.add_list(view.offer.tools)
        else:
            tools = [offered.tool for offered in page]
            self._shown.add(tools, self._turn())
            self.state.shown.add(tools)

    def was_told(self, key: ToolKey, *, unloads: bool = False) -> None:
        """Record that the client was told of a changed tool: it and its session know it as it is now.

        Args:
            key: the tool.
            unloads: whether it has to be loaded again.
        """
        known = self.state.loaded.tools.get(key)
        if known is not None:
            self._shown.assume(key, known.schema_hash)
        self.was_shown((key,))
        if known is not None and not unloads:
            self.load(Loading(tools=(key,), source=known.source))
