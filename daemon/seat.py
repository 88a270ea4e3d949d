"""Where a client sits: its profile and its surface; and what one request of its sees and may load there.

A session speaks the protocol; this is what it speaks about. A request belongs to the conversation that it
names, whatever its connection was asked before.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from daemon.catalog.loaded import MAX_LOADED, Source
from daemon.catalog.remembered import OTHERS
from daemon.catalog.shown import Shown, shown_since
from daemon.config.model import DEFAULT_PROFILE
from daemon.errors import ToolDisabled
from daemon.surfaces.base import Loading, View
from daemon.surfaces.core import usual_tools
from daemon.surfaces.table import PRELOADING, chosen, is_switched_off

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from daemon.catalog.offer import Offered
    from daemon.catalog.snapshot import Catalog
    from daemon.config.model import Config, Profile
    from daemon.context import SessionContext
    from daemon.model import ToolKey
    from daemon.sessions import Conversation
    from daemon.surfaces.base import Surface


class Seat:
    """One client's. Begins as the default profile has it."""

    def __init__(self, context: SessionContext, uid: int | None = None) -> None:
        """Sit a client down.

        Args:
            context: what all sessions share.
            uid: the user that it runs as; None is the daemon's own.
        """
        self.client = ""
        """What the client calls itself."""
        self.settled = False
        """Whether this is final: a hello was taken, or a request without one."""
        self.began: float | None = None
        """When its conversation began, in seconds since the epoch, if that was with an earlier daemon, or over
        another connection: what it was shown meanwhile is not known."""
        self._uid = uid
        self._context = context
        self.wishes: tuple[str, str | None, bool | None] = (DEFAULT_PROFILE, None, None)
        """What the client asked for, or an operator for it: profile, surface, lazy; another object whenever
        somebody asks again."""
        self._config: Config | None = None
        self._denied = ""
        self._profile = self._now.profiles[DEFAULT_PROFILE]
        self._surface: Surface = next(iter(context.surfaces.values()))
        self._switched_off = False
        self._preload: tuple[str, ...] = ()
        self._usual: dict[str, tuple[ToolKey, ...]] = {}

    def greet(self, hello: dict[str, object]) -> None:
        """Take what a bridge asks for on behalf of its client: a profile, a surface, a lazy switch.

        What does not exist denies everything: a profile restricts, and showing more than it would because of a
        typo is no way out.
        """
        name, surface, lazy = hello.get("profile"), hello.get("surface"), hello.get("lazy")
        profile = name if isinstance(name, str) else self.wishes[0]
        self.wishes = (
            profile,
            surface if isinstance(surface, str) else None,
            lazy if isinstance(lazy, bool) else None,
        )
        self._config = None
        began = hello.get("resumed")
        # Of a time that cannot be read only this much is known: that there is something to resume.
        self.began = None if began is None else began if isinstance(began, int | float) else 0.0

    def move(self, profile: str) -> None:
        """Sit the client down with another profile, whose surface and switches count instead of its wishes."""
        self.wishes = (profile, None, None)
        self._config = None

    def own_key(self, key: str) -> str:
        """A session's key as the daemon knows it: what another user names is another session."""
        return key if self._uid in {None, os.getuid()} else f"{OTHERS}{self._uid}: {key}"

    @property
    def denied(self) -> str:
        """Why nothing is served here; empty if it is."""
        self._sit()
        return self._denied

    @property
    def profile(self) -> Profile:
        """The client's profile."""
        self._sit()
        return self._profile

    @property
    def surface(self) -> Surface:
        """What the client's calls mean."""
        self._sit()
        return self._surface

    @property
    def switched_off(self) -> bool:
        """Whether loading on demand is off here: no session is read then, nothing compared (seed 002, §9)."""
        self._sit()
        return self._switched_off

    @property
    def preload(self) -> tuple[str, ...]:
        """The tools that are loaded here from the start."""
        self._sit()
        return self._preload

    def usual(self) -> Sequence[ToolKey]:
        """The core tools of a profile that names none: chosen when they are first asked for here, and kept."""
        profile = self.profile
        if profile.name not in self._usual:
            self._usual = {profile.name: usual_tools(self._context.means, self._context.catalog.value, profile)}
        return self._usual[profile.name]

    @property
    def _now(self) -> Config:
        return self._context.catalog.value.config

    def _sit(self) -> None:
        """Sit down after the configuration, which may have become another one."""
        config = self._now
        if config is self._config:
            return
        self._config, self._denied = config, ""
        name, surface, lazy = self.wishes
        profile = config.profiles.get(name)
        if profile is None:
            known = ", ".join(config.profiles)
            self._denied = f"there is no profile {name[:100]!r} in mcpd's configuration; there are: {known}"
            return
        self._profile = profile
        self._switched_off = is_switched_off(config, profile, lazy=lazy)
        wanted = chosen(config, profile, surface=surface, lazy=lazy)
        surfaces = self._context.surfaces
        # A name that was asked for is checked also where the switches make no use of it.
        for each in (surface or wanted, wanted):
            if each not in surfaces:
                self._denied = f"there is no surface {each[:100]!r}; there are: {', '.join(surfaces)}"
                return
        self._surface = surfaces[wanted]
        self._preload = profile.preload if wanted == PRELOADING else ()


class Asked:
    """One conversation, over one connection: what its requests see, and what they load."""

    def __init__(
        self,
        seat: Seat,
        conversation: Conversation,
        context: SessionContext,
        turn: Callable[[], int] = lambda: 0,
    ) -> None:
        """Sit a conversation down.

        Args:
            seat: where.
            conversation: which.
            context: what all sessions share.
            turn: the connection's present one (`wire.outbox.Link.turns`).
        """
        self.conversation = conversation
        self._seat = seat
        self._context = context
        self._turn = turn
        self._shown = Shown(self._shown_before)
        self._moment: tuple[object, ...] = ()
        self._preloaded: tuple[Catalog, Profile] | None = None
        """What there was when tools were preloaded last, and for which profile."""

    @property
    def client(self) -> str:
        """What the client calls itself."""
        return self._seat.client

    @property
    def surface(self) -> Surface:
        """What its calls mean."""
        return self._seat.surface

    @property
    def session(self) -> str:
        """What its conversation is named; empty if nobody has named it."""
        return (self.conversation.key or "") if self.conversation.named else ""

    @property
    def compares(self) -> bool:
        """Whether what it calls is compared with what it was shown."""
        return not self._seat.switched_off

    @property
    def key(self) -> str | None:
        """The key of its session; None belongs to the connection, and what it loads is not kept."""
        return self.conversation.key

    def view(self, turn: int | None = None) -> View:
        """What it sees of the catalog now.

        Args:
            turn: of the request: what was shown since was not known to who wrote it.

        Raises:
            ToolDisabled: the request's profile has left the configuration while it waited.
        """
        if turn is not None and self._seat.denied:
            raise ToolDisabled(self._seat.denied)
        now = self._context.wall()
        if self._seat.switched_off:
            return View(
                catalog=self._context.catalog.value,
                profile=self._seat.profile,
                now=now,
                means=self._context.means,
            )
        self._judge()
        return View(
            catalog=self._context.catalog.value,
            profile=self._seat.profile,
            now=now,
            means=self._context.means,
            loaded=self.conversation.loaded,
            shown=partial(self._shown.hash_of, turn=turn),
            usual=self._seat.usual,
        )

    def _shown_before(self, key: ToolKey) -> str | None:
        """How a tool was shown before this connection was there, to its client or to others of its session."""
        began = self._seat.began
        if began is None:
            known = self.conversation.shown.hash_of(key)
            began = self.conversation.began
            if known is not None or began is None:
                return known
        return shown_since(self._context.catalog.value, key, began)

    def moment(self, turn: int) -> object:
        """What `view` depends on, but for the clock: the same object as long as all of it is the same.

        Returns None where it depends on the turn, too.
        """
        if turn <= self._shown.latest:
            return None
        catalog, loaded, seat = self._context.catalog.value, self.conversation.loaded, self._seat.wishes
        shown, before = self._shown.version, self.conversation.shown.version
        known = self._moment
        if (
            not known
            or known[0] is not catalog
            or known[1] is not loaded
            or known[2] is not seat
            or known[3] != shown
            or known[4] != before
        ):
            self._judge()
            known = self._moment = (catalog, self.conversation.loaded, seat, shown, before)
        return known

    def _judge(self) -> None:
        """Bring what is loaded up to date: what became of it, and what the profile wants loaded besides."""
        context, conversation = self._context, self.conversation
        context.sessions.judge(conversation)
        catalog, profile, known = context.catalog.value, self._seat.profile, self._preloaded
        if not self._seat.preload or (known is not None and known[0] is catalog and known[1] is profile):
            return
        self._preloaded = catalog, profile
        offer = context.means.offers.of(catalog, profile)
        wanted = (offer.find(name) for name in self._seat.preload[:MAX_LOADED])
        # What has been loaded and is not what it was is judged like any other, not loaded anew unasked.
        tools = [
            (each.tool, catalog.servers[each.tool.server].epoch)
            for each in wanted
            if each is not None and each.key not in conversation.loaded
        ]
        if tools:
            context.sessions.load(conversation, tools, Source.POLICY_PRELOAD)

    def load(self, loading: Loading) -> None:
        """Tools that a call has loaded are listed from now on."""
        view = self.view()
        tools = [
            (offered.tool, view.catalog.servers[offered.tool.server].epoch)
            for key in loading.tools
            if (offered := view.offer.tools.get(key)) is not None
        ]
        self._context.sessions.load(self.conversation, tools, loading.source)

    def source_of(self, key: ToolKey) -> str | None:
        """Who loaded a tool; None if the session has not loaded it."""
        known = None if self._seat.switched_off else self.conversation.loaded.tools.get(key)
        return None if known is None else str(known.source)

    async def kept(self) -> None:
        """Return once what was loaded is on disk, or cannot be for now."""
        await self._context.sessions.kept(self.conversation)

    def was_shown(self, keys: Iterable[ToolKey]) -> None:
        """The client was shown these tools as they are now."""
        if self._seat.switched_off:
            return
        servers = self._context.catalog.value.servers
        tools = [
            tool
            for server, name in keys
            if server in servers and (tool := (servers[server].tools or {}).get(name)) is not None
        ]
        self._shown.add(tools, self._turn())
        self.conversation.shown.add(tools)

    def was_listed(self, page: Iterable[Offered], view: View, *, whole: bool) -> None:
        """The client was given these tools of a list.

        Args:
            page: what was in the answer.
            view: the moment of the list.
            whole: whether that was everything that the profile offers.
        """
        if self._seat.switched_off:
            return
        if whole:
            self._shown.add_list(view.offer.tools, self._turn())
            self.conversation.shown.add_list(view.offer.tools)
        else:
            tools = [offered.tool for offered in page]
            self._shown.add(tools, self._turn())
            self.conversation.shown.add(tools)

    def was_told(self, key: ToolKey) -> None:
        """The client was told that a tool has changed: it knows it as it is now, and so does its session."""
        known = self.conversation.loaded.tools.get(key)
        if known is not None:
            self._shown.assume(key, known.schema_hash)
        self.was_shown((key,))
        if known is not None:
            self.load(Loading(tools=(key,), source=known.source))
