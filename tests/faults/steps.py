"""What can happen in a case, and what must be so: the words that the tables of cases are written in."""

import json
import re
import signal
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import trio

from tests.faults.arena import BOUND, code_of
from tests.faults.case import NOTHING, Case, Net, Play, Stdio, Step, kill
from tests.faults.history import Described
from tests.faults.upstreams import Act
from tests.faults.wire import HARMLESS, Toxic
from tests.waiting import pauses

Json = dict[str, Any]


# --- what must be so ----------------------------------------------------------------------------------------


async def reaches(play: Play, *, states: str, reason: str = "", restarts: int = 0) -> None:
    """The server gets into one of these states (`|` between them), and stays there long enough to be seen.

    `reason`: a pattern that its reason matches.
    `restarts`: it has been started again at least so often.
    """
    wanted = states.split("|")
    await play.until_seen(
        lambda seen, _told: (
            seen.state in wanted and seen.restarts >= restarts and re.search(reason, seen.reason)
        ),
        f"not {states} because of {reason!r} after {restarts} restarts",
    )


UP = partial(reaches, states="ready")
AGAIN = partial(reaches, states="ready", restarts=1)


async def served(play: Play, *, refusals: str = "UpstreamUnavailable") -> None:
    """Calls are served, at once or after a while; until then they are refused as not sent."""
    allowed = {*refusals.split("|"), *(["UpstreamTimeout"] if play.is_hasty else [])}
    with trio.move_on_after(BOUND):
        while (code := code_of(await (await play.client.call(play.name, "echo")).wait())) != "":
            assert code in allowed, (code, play.log())
        return
    raise AssertionError(f"never served again\n{play.log()}")


async def ended(play: Play, *, reason: str, times: int = 1) -> None:
    """A run of the server has ended, for this reason (a pattern), so many times."""
    await play.until(
        lambda: sum(bool(re.search(reason, why)) for why in play.ended()) >= times,
        f"no run has ended with {reason!r}",
    )


async def shows(play: Play, *, path: str, least: int | None = None, like: str | None = None) -> None:
    """The server's status has this, a value or a least one, below these keys.

    `path`: keys with dots between them.
    `like`: a pattern.
    """

    def holds(_seen: object, told: Json) -> bool:
        found: Any = told
        for key in path.split("."):
            found = found[key]
        return (least is None or found >= least) and (like is None or re.search(like, str(found)) is not None)

    await play.until_seen(holds, f"{path} is not {least or like}")


async def is_the_same(play: Play) -> None:
    """The server is the same process as when the case began, never started again."""
    seen, _told = await play.look()
    assert (seen.restarts, play.ended()) == (0, []), play.log()


async def lists(play: Play, *, tools: Sequence[str] | int, can_call: bool = True) -> None:
    """A model is shown exactly these tools of the server, sooner or later; all can be called, or none.

    `tools`: names, or how many.
    """
    described = await play.describe()
    with trio.move_on_after(BOUND):
        for pause in pauses():
            if _fits(described, tools, can_call=can_call):
                return
            await trio.sleep(pause)
            described = await play.describe()
    raise AssertionError(f"listed are {described}\n{play.log()}")


def _fits(described: Described, tools: Sequence[str] | int, *, can_call: bool) -> bool:
    right = len(described.tools) == tools if isinstance(tools, int) else described.tools == set(tools)
    return right and bool(described.unavailable & described.tools) != can_call


async def epoch_rises(play: Play, *, by: int) -> None:
    """Since the last such step (or the first look) the epoch has risen by this."""
    if play.first_epoch is None:
        play.first_epoch = (await play.look())[0].epoch
        return
    wanted = play.first_epoch + by
    await play.until_seen(lambda seen, _told: seen.epoch == wanted, f"the epoch is not {wanted}")


async def took_messages(play: Play, *, method: str, times: int = 1, exactly: bool = False) -> None:
    """The server has received so many messages of a method; `exactly`: and no more by now."""
    await play.until(
        lambda: len(play.taken(method)) >= times,
        f"{method} was not taken {times} times",
    )
    assert not exactly or len(play.taken(method)) == times


# --- calls ----------------------------------------------------------------------------------------------------


async def call(
    play: Play,
    *,
    tool: str = "echo",
    args: Mapping[str, Any] = NOTHING,
    code: str = "",
    says: str = "",
    times: int = 1,
) -> None:
    """A call, and its answer.

    `code`: the error that it is answered with; several with `|` between them; empty: a result.
    `says`: a pattern of the answer's text.
    """
    for _ in range(times):
        answer = await _answer(play, tool, args)
        while not code and play.is_hasty and code_of(answer) == "UpstreamTimeout":
            answer = await _answer(play, tool, args)
        assert code_of(answer) in code.split("|"), (answer, play.log())
        assert re.search(says, json.dumps(answer)), (answer, says)


async def _answer(play: Play, tool: str, args: Mapping[str, Any]) -> Json:
    pending = await play.client.call(play.name, tool, **args)
    return await pending.wait()


async def hold(play: Play, *, times: int = 1, tool: str = "sleep", args: Mapping[str, Any] = NOTHING) -> None:
    """Calls whose answers are not waited for; the server has received them."""
    before = len(play.taken("tools/call"))
    play.held += [await play.client.call(play.name, tool, **args) for _ in range(times)]
    await play.until(lambda: len(play.taken("tools/call")) >= before + times, "the calls have not arrived")


async def send(play: Play, *, times: int = 1, tool: str = "echo", args: Mapping[str, Any] = NOTHING) -> None:
    """Calls whose answers are not waited for; nor is their arrival."""
    play.held += [await play.client.call(play.name, tool, **args) for _ in range(times)]


async def answers(play: Play, *, code: str = "", says: str = "", some: str = "") -> None:
    """Everything held is answered now, with this error (several with `|` between them), or with a result.

    `some`: at least one is answered with this error.
    """
    held, play.held = play.held, []
    assert held, "nothing is held"
    codes = set()
    for pending in held:
        answer = await pending.wait()
        codes.add(code_of(answer))
        assert code_of(answer) in code.split("|"), (answer, play.log())
        assert re.search(says, json.dumps(answer)), (answer, says)
    assert not some or some in codes, codes


async def withdraw(play: Play) -> None:
    """Every held call is cancelled by its client."""
    held, play.held = play.held, []
    for pending in held:
        await play.client.withdraw(pending)


async def call_from_another(play: Play, *, tool: str = "sleep") -> None:
    """Another client calls, and hangs up once the server has got it."""
    before = len(play.taken("tools/call"))
    other = await play.visitors.client()
    await other.call(play.name, tool)
    await play.until(lambda: len(play.taken("tools/call")) > before, "the call has not arrived")
    await other.close()


# --- what is done to the server -----------------------------------------------------------------------------


async def kill_server(play: Play, *, name: str = "SIGKILL") -> None:
    """Its process gets a signal."""
    seen, _told = await play.look()
    kill(seen.pid, getattr(signal, name))


async def line(play: Play, *, up: Toxic = HARMLESS, down: Toxic = HARMLESS) -> None:
    """The line to the server, or from it, is another from now on."""
    assert play.wire is not None
    play.wire.up.toxic, play.wire.down.toxic = up, down


async def goes_away(play: Play) -> None:
    """Nobody listens there any more, and every connection ends."""
    assert play.wire is not None
    play.wire.hang_up()


async def comes_back(play: Play) -> None:
    """It listens."""
    assert play.wire is not None
    play.wire.answer()


async def lines_end(play: Play, *, reset: bool = False) -> None:
    """Every connection to the server ends, or is reset; it listens on."""
    assert play.wire is not None
    play.wire.end_lines(reset=reset)


async def behaves(play: Play, *, on: Mapping[str, Sequence[Act | None]] = NOTHING) -> None:
    """From now on it does this, and what it did not do before is forgotten."""
    assert play.upstream is not None
    play.upstream.on = {method: list(acts) for method, acts in on.items()}


async def has_tools(play: Play, *, tools: Sequence[Any], announced: bool = True) -> None:
    """It has other tools now, and says so if `announced`."""
    assert play.upstream is not None
    play.upstream.tools = list(tools)
    if announced:
        await play.upstream.announce()


async def forgets_sessions(play: Play) -> None:
    """It knows no session any more, as after a restart."""
    assert play.upstream is not None
    play.upstream.sessions.clear()


# --- cases ----------------------------------------------------------------------------------------------------


def case(name: str, server: Stdio | Net | None, *steps: Step, **more: Any) -> Case:
    """A case; one of a network has its transport before its name."""
    return Case(
        name=f"{server.kind}: {name}" if isinstance(server, Net) else name, server=server, steps=steps, **more
    )


def same(name: str, server: Stdio | Net, *steps: Step, **more: Any) -> Case:
    """A fault that the server survives: calls are served afterwards, by the run that it began with."""
    return case(name, server, UP, *steps, call, is_the_same, **more)


def again(name: str, server: Stdio | Net, *steps: Step, **more: Any) -> Case:
    """A fault that ends the server's run: calls are served afterwards, by another."""
    return case(name, server, UP, *steps, AGAIN, call, **more)


def back(name: str, server: Stdio | Net, *steps: Step, **more: Any) -> Case:
    """A fault after which calls are served, at once or after a while, by whichever run."""
    return case(name, server, UP, *steps, served, call, **more)
