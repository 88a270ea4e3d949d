"""A server whose clients do not share an instance, with instances that answer when the test says so."""

from collections.abc import Hashable

import attrs

from daemon.errors import NoSession, NoWorkspace
from daemon.ports import Holder
from tests.fakes_upstream import FakeUpstream, Stage


@attrs.define(eq=False)
class TestInstances:
    """A `ports.Instances`: one for each session, or for each workspace."""

    __test__ = False

    stage: Stage
    server: str
    by_workspace: bool = False
    needs_workspace: bool = False
    up: bool = True
    holders: list[Holder] = attrs.field(factory=list)
    """Whom an instance was asked for, each time."""
    running: dict[Hashable, FakeUpstream] = attrs.field(factory=dict)
    left: list[Hashable] = attrs.field(factory=list)
    """Sessions of which nobody was left, each time."""
    losses: dict[Hashable, str] = attrs.field(factory=dict)
    """Why the instances of sessions have ended that were not told yet."""
    begun: int = 0
    ended: int = 0

    def session_ended(self, session: Hashable, *, soon: bool = False) -> None:
        """Note it (`ports.Instances.session_ended`)."""
        del soon
        self.left.append(session)

    def of(self, holder: Holder) -> FakeUpstream:
        """The instance for a client (`ports.Instances.of`)."""
        self.holders.append(holder)
        key, name = holder.session, f"{self.server}#{holder.number}"
        if self.by_workspace:
            key, name = holder.workspace, f"{self.server}@{holder.workspace or ''}"
            if holder.fault or (key is None and self.needs_workspace):
                raise NoWorkspace(f"server {self.server} needs a workspace: {holder.fault or 'none'}.")
        elif key is None:
            raise NoSession(f"server {self.server} needs a session")
        if key not in self.running:
            made = self.running[key] = FakeUpstream(name, up=self.up)
            made.of = self.server
            self.stage.upstreams[name] = made
        return self.running[key]

    def take_loss(self, holder: Holder) -> str:
        """Why the last instance of a client has ended (`ports.Instances.take_loss`)."""
        return self.losses.pop(holder.session, "")

    def end(self, instance: FakeUpstream, why: str = "") -> None:
        """End an instance for good; `why` is what its session is told."""
        instance.is_gone = True
        self.losses.update((key, why) for key, each in self.running.items() if each is instance and why)
        del self.stage.upstreams[instance.name]
        self.running = {key: each for key, each in self.running.items() if each is not instance}
        self.stage.context.subscribers.gone(instance.name)

    @property
    def names(self) -> list[str]:
        """The names of those that run."""
        return [each.name for each in self.running.values()]


def divided(
    stage: Stage,
    server: str = "alpha",
    *,
    by_workspace: bool = False,
    needs_workspace: bool = False,
    up: bool = True,
) -> TestInstances:
    """Have the clients of a server no longer share it."""
    instances = TestInstances(stage, server, by_workspace, needs_workspace, up)
    stage.upstreams[server].instances = instances
    return instances
