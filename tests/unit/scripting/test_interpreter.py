"""Scripts in the real interpreter: what they get, what they give, and what ends them."""

from daemon.config.tuning import ScriptLimits
from daemon.scripting.interpreter import Interpreter, ScriptError, ScriptOutcome


async def echo(name: str, arguments: dict[str, object]) -> object:
    if name == "s/fails":
        raise ScriptError("denied", "You may not do this")
    return {"name": name, "arguments": arguments}


async def run(code: str, limits: ScriptLimits | None = None, **inputs: object) -> ScriptOutcome:
    return await Interpreter(2).run(code, inputs, echo, limits or ScriptLimits(), lambda: False)


async def test_the_last_expression_is_the_value() -> None:
    assert (await run("inputs['n'] + 1", n=1)).value == 2
    assert (await run("x = 1\n{\n  'a': x,\n}")).value == {"a": 1}
    assert (await run("x = 1")).value is None


async def test_a_call_answers() -> None:
    outcome = await run("made = await call('s/t', {'x': 1})\nmade['arguments']")
    assert outcome == ScriptOutcome({"x": 1})


async def test_a_failed_call_is_a_tool_error() -> None:
    code = "try:\n  await call('s/fails')\nexcept ToolError as error:\n  print(error.code, error.text)"
    assert (await run(code)).printed == "denied You may not do this\n"
    outcome = await run("\nawait call('s/fails')")
    assert outcome.error.startswith("line 2: ToolError: denied: You may not do this")
