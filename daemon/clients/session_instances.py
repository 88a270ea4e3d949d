"""The instances of servers that one session uses over one connection, where clients do not share one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs

from daemon.clients.capabilities import declared_in
from daemon.errors import CallError
from daemon.ports import Holder
from daemon.protocol import CALL_TOOL
from daemon.surfaces.answers import with_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daemon.catalog.snapshot import Catalog
    from daemon.clients.client import Client
    from daemon.clients.context import SessionContext
    from daemon.clients.session_state import SessionState
    from daemon.ports import Upstream
    from daemon.surfaces.base import Forward
    from daemon.wire.envelope import Buffer


class SessionInstances:
    """The instances that the requests of one session go to over one connection."""

    def __init__(self, client: Client, state: SessionState, context: SessionContext) -> None:
        """Begin without any.

        Args:
            client: the connection's client.
            state: the session's state.
            context: what all sessions share.
        """
        self._client = client
        self._state = state
        self._context = context
        self.known: dict[str, tuple[Upstream, int]] = {}
        """By server, each with the version of the workspace that it was found for."""
        self.losses: dict[str, str] = {}
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
        self._context.audience.look_at(found.name)
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
        has_session = client.visitor.keeps or self._state.key is not None
        return Holder(
            session=self._state.identity if has_session else None,
            number=client.number,
            owner=client.visitor.owner,
            workspace=workspace.directory,
            fault=workspace.fault,
            capabilities=declared_in(client.capabilities) if has_session else None,
        )

    async def find_workspace(self, request_id: bytes | None) -> None:
        """Return once it is known which directory the client works in, or that it has named none.

        Args:
            request_id: the client's request that needs it.
        """
        await self._client.workspace.find(request_id)

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
            await self.find_workspace(request_id)
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
