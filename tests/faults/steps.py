"""What can happen in a case, and what must be so: the words that the tables of cases are written in."""

import json
import re
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import trio

from tests.faults.arena import BOUND, code_of
from tests.faults.case import Case, Net, Play, Stdio, Step, kill
from tests.faults.upstreams import Act
from tests.faults.wire import HARMLESS, Toxic
from tests.waiting import pauses

Json = dict[str, Any]


# --- what must be so ----------------------------------------------------------------------------------------


@attrs.frozen
class Reaches:
    """The server gets into one of these states (`|` between them), and stays there long enough to be seen."""

    states: str
    reason: str = attrs.field(default="", kw_only=True)
    """A pattern that its reason matches."""
    restarts: int = attrs.field(default=0, kw_only=True)
    """It has been started again at least so often."""

    async def take(self, play: Play) -> None:
        """Look until it is so."""
        wanted = self.states.split("|")
        await play.until_seen(
            lambda seen, _told: (
                seen.state in wanted and seen.restarts >= self.restarts and re.search(self.reason, seen.reason)
            ),
            f"not {self.states} because of {self.reason!r} after {self.restarts} restarts",
        )


UP = Reaches("ready")
AGAIN = Reaches("ready", restarts=1)


@attrs.frozen
class Served:
    """Calls are served, at once or after a while; until then they are refused as not sent."""

    refusals: str = "UpstreamUnavailable"

    async def take(self, play: Play) -> None:
        """Call again and again."""
        refusals = {*self.refusals.split("|"), *(["UpstreamTimeout"] if play.is_hasty else [])}
        with trio.move_on_after(BOUND):
            while (code := code_of(await (await play.client.call(play.name, "echo")).wait())) != "":
                assert code in refusals, (code, play.log())
            return
        raise AssertionError(f"never served again\n{play.log()}")


@attrs.frozen
class Ended:
    """A run of the server has ended, for this reason (a pattern), so many times."""

    reason: str
    times: int = 1

    async def take(self, play: Play) -> None:
        """Look until it is so."""
        await play.until(
            lambda: sum(bool(re.search(self.reason, why)) for why in play.ended()) >= self.times,
            f"no run has ended with {self.reason!r}",
        )


@attrs.frozen
class Shows:
    """The server's status has this, a value or a least one, below these keys."""

    path: str
    """Keys with dots between them."""
    least: int | None = None
    like: str | None = None
    """A pattern."""

    async def take(self, play: Play) -> None:
        """Look until it is so."""

        def holds(_seen: object, told: Json) -> bool:
            found: Any = told
            for key in self.path.split("."):
                found = found[key]
            return (self.least is None or found >= self.least) and (
                self.like is None or re.search(self.like, str(found)) is not None
            )

        await play.until_seen(holds, f"{self.path} is not {self.least or self.like}")


@attrs.frozen
class Same:
    """The server is the same process as when the case began, never started again."""

    async def take(self, play: Play) -> None:
        """See."""
        seen, _told = await play.look()
        assert (seen.restarts, play.ended()) == (0, []), play.log()


@attrs.frozen
class Lists:
    """A model is shown exactly these tools of the server, sooner or later; all can be called, or none."""

    tools: Sequence[str] | int
    """Names, or how many."""
    callable: bool = True

    async def take(self, play: Play) -> None:
        """Look until it is so."""
        described = await play.describe()
        with trio.move_on_after(BOUND):
            for pause in pauses():
                if self._fits(described):
                    return
                await trio.sleep(pause)
                described = await play.describe()
        raise AssertionError(f"listed are {described}\n{play.log()}")

    def _fits(self, described: Any) -> bool:
        right = (
            len(described.tools) == self.tools
            if isinstance(self.tools, int)
            else described.tools == set(self.tools)
        )
        return right and bool(described.unavailable & described.tools) != self.callable


@attrs.frozen
class EpochRises:
    """Since the last such step (or the first look) the epoch has risen by this."""

    by: int

    async def take(self, play: Play) -> None:
        """Look until it is so."""
        if play.first_epoch is None:
            play.first_epoch = (await play.look())[0].epoch
            return
        wanted = play.first_epoch + self.by
        await play.until_seen(lambda seen, _told: seen.epoch == wanted, f"the epoch is not {wanted}")


@attrs.frozen
class Took:
    """The server has received so many messages of a method; `exactly`: and no more by now."""

    method: str
    times: int = 1
    exactly: bool = attrs.field(default=False, kw_only=True)

    async def take(self, play: Play) -> None:
        """Look until it is so."""
        await play.until(
            lambda: len(play.taken(self.method)) >= self.times,
            f"{self.method} was not taken {self.times} times",
        )
        assert not self.exactly or len(play.taken(self.method)) == self.times


# --- calls ----------------------------------------------------------------------------------------------------


@attrs.frozen
class Call:
    """A call, and its answer."""

    tool: str = "echo"
    args: Mapping[str, Any] = attrs.field(factory=dict)
    code: str = attrs.field(default="", kw_only=True)
    """The error that it is answered with; several with `|` between them; empty: a result."""
    says: str = attrs.field(default="", kw_only=True)
    """A pattern of the answer's text."""
    times: int = attrs.field(default=1, kw_only=True)

    async def take(self, play: Play) -> None:
        """Call and wait."""
        for _ in range(self.times):
            answer = await self._answer(play)
            while not self.code and play.is_hasty and code_of(answer) == "UpstreamTimeout":
                answer = await self._answer(play)
            assert code_of(answer) in self.code.split("|"), (answer, play.log())
            assert re.search(self.says, json.dumps(answer)), (answer, self.says)

    async def _answer(self, play: Play) -> Json:
        pending = await play.client.call(play.name, self.tool, **self.args)
        return await pending.wait()


@attrs.frozen
class Hold:
    """Calls whose answers are not waited for; the server has received them."""

    times: int = 1
    tool: str = "sleep"
    args: Mapping[str, Any] = attrs.field(factory=dict)

    async def take(self, play: Play) -> None:
        """Send them."""
        before = len(play.taken("tools/call"))
        play.held += [await play.client.call(play.name, self.tool, **self.args) for _ in range(self.times)]
        await play.until(
            lambda: len(play.taken("tools/call")) >= before + self.times, "the calls have not arrived"
        )


@attrs.frozen
class Send:
    """Calls whose answers are not waited for; nor is their arrival."""

    times: int = 1
    tool: str = "echo"
    args: Mapping[str, Any] = attrs.field(factory=dict)

    async def take(self, play: Play) -> None:
        """Send them."""
        play.held += [await play.client.call(play.name, self.tool, **self.args) for _ in range(self.times)]


@attrs.frozen
class Answers:
    """Everything held is answered now, with this error (several with `|` between them), or with a result."""

    code: str = ""
    says: str = ""
    some: str = attrs.field(default="", kw_only=True)
    """At least one is answered with this error."""

    async def take(self, play: Play) -> None:
        """Wait for all."""
        held, play.held = play.held, []
        assert held, "nothing is held"
        codes = set()
        for pending in held:
            answer = await pending.wait()
            codes.add(code_of(answer))
            assert code_of(answer) in self.code.split("|"), (answer, play.log())
            assert re.search(self.says, json.dumps(answer)), (answer, self.says)
        assert not self.some or self.some in codes, codes


@attrs.frozen
class Withdraw:
    """Every held call is cancelled by its client."""

    async def take(self, play: Play) -> None:
        """Cancel."""
        held, play.held = play.held, []
        for pending in held:
            await play.client.withdraw(pending)


@attrs.frozen
class CallFromAnother:
    """Another client calls, and hangs up once the server has got it."""

    tool: str = "sleep"

    async def take(self, play: Play) -> None:
        """Come and go."""
        before = len(play.taken("tools/call"))
        other = await play.visitors.client()
        await other.call(play.name, self.tool)
        await play.until(lambda: len(play.taken("tools/call")) > before, "the call has not arrived")
        await other.close()


# --- what is done to the server -----------------------------------------------------------------------------


@attrs.frozen
class Kill:
    """Its process gets a signal."""

    name: str = "SIGKILL"

    async def take(self, play: Play) -> None:
        """Signal."""
        seen, _told = await play.look()
        kill(seen.pid, getattr(signal, self.name))


@attrs.frozen
class Line:
    """The line to the server, or from it, is another from now on."""

    up: Toxic = HARMLESS
    down: Toxic = HARMLESS

    async def take(self, play: Play) -> None:
        """Change it."""
        assert play.wire is not None
        play.wire.up.toxic, play.wire.down.toxic = self.up, self.down


@attrs.frozen
class GoesAway:
    """Nobody listens there any more, and every connection ends."""

    async def take(self, play: Play) -> None:
        """Hang up."""
        assert play.wire is not None
        play.wire.hang_up()


@attrs.frozen
class ComesBack:
    """It listens."""

    async def take(self, play: Play) -> None:
        """Answer."""
        assert play.wire is not None
        play.wire.answer()


@attrs.frozen
class LinesEnd:
    """Every connection to the server ends, or is reset; it listens on."""

    reset: bool = False

    async def take(self, play: Play) -> None:
        """End them."""
        assert play.wire is not None
        play.wire.end_lines(reset=self.reset)


@attrs.frozen
class Behaves:
    """From now on it does this, and what it did not do before is forgotten."""

    on: Mapping[str, Sequence[Act | None]] = attrs.field(factory=dict)

    async def take(self, play: Play) -> None:
        """Change the script."""
        assert play.upstream is not None
        play.upstream.on = {method: list(acts) for method, acts in self.on.items()}


@attrs.frozen
class HasTools:
    """It has other tools now, and says so if `announced`."""

    tools: Sequence[Any]
    announced: bool = True

    async def take(self, play: Play) -> None:
        """Change them."""
        assert play.upstream is not None
        play.upstream.tools = list(self.tools)
        if self.announced:
            await play.upstream.announce()


@attrs.frozen
class ForgetsSessions:
    """It knows no session any more, as after a restart."""

    async def take(self, play: Play) -> None:
        """Forget."""
        assert play.upstream is not None
        play.upstream.sessions.clear()


# --- cases ----------------------------------------------------------------------------------------------------


def stdio(entry: Json | None = None, **script: Any) -> Stdio:
    """A child with this script, and these keys of its configuration."""
    return Stdio(script=script, entry=entry or {})


def net(kind: str, entry: Json | None = None, **more: Any) -> Net:
    """A server behind a transport, and these keys of its configuration."""
    return Net(kind=kind, entry=entry or {}, **more)


def case(name: str, server: Stdio | Net | None, *steps: Step, **more: Any) -> Case:
    """A case; one of a network has its transport before its name."""
    return Case(
        name=f"{server.kind}: {name}" if isinstance(server, Net) else name, server=server, steps=steps, **more
    )


def same(name: str, server: Stdio | Net, *steps: Step, **more: Any) -> Case:
    """A fault that the server survives: calls are served afterwards, by the run that it began with."""
    return case(name, server, UP, *steps, Call(), Same(), **more)


def again(name: str, server: Stdio | Net, *steps: Step, **more: Any) -> Case:
    """A fault that ends the server's run: calls are served afterwards, by another."""
    return case(name, server, UP, *steps, AGAIN, Call(), **more)


def back(name: str, server: Stdio | Net, *steps: Step, **more: Any) -> Case:
    """A fault after which calls are served, at once or after a while, by whichever run."""
    return case(name, server, UP, *steps, Served(), Call(), **more)


def down(name: str, server: Stdio | Net, states: str, reason: str = "", says: str = "", **more: Any) -> Case:
    """A server that does not come up: the reason is seen, and calls are refused as not sent."""
    refused = Call(code="UpstreamUnavailable", says=says)
    return case(name, server, Reaches(states, reason=reason), refused, **more)
