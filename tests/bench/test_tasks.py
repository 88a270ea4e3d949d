"""The four tasks on each surface: that calls and scripts come to one answer, and what is told of them."""

import ast
import asyncio
import json
import types
from pathlib import Path
from typing import Any

import pytest

from bench.tasks.__main__ import SERVERS, main
from bench.tasks.meanwhile import main as meanwhile
from bench.tasks.seats import CODE, CODE_MODE
from bench.tasks.stand_in import KINDS
from bench.tasks.work import TASKS, Call, Task

LISTED = {"type": "object"}


def answer(call: Call) -> str:
    """What the stand-in of a server says."""
    server, _, name = call[0].partition("/")
    return KINDS[server](name, call[1])


def by_calls(task: Task) -> Any:
    """The answer of a task, each call answered at once."""
    calls = task.direct()
    call = next(calls)
    while True:
        try:
            call = calls.send(answer(call))
        except StopIteration as done:
            return done.value


def run(script: str) -> Any:
    """The value of a script's last expression, run by this interpreter."""

    async def call(name: str, arguments: dict[str, Any]) -> Any:
        text = answer((name, arguments))
        if name.startswith("filesystem/"):
            return {"content": text}
        return text if name.startswith("fetch/") else json.loads(text)

    tree = ast.parse(script)
    last = tree.body[-1]
    assert isinstance(last, ast.Expr)
    tree.body[-1] = ast.copy_location(ast.Assign([ast.Name("value", ast.Store())], last.value), last)
    code = compile(ast.fix_missing_locations(tree), "script", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, Any] = {"call": call}
    running = types.FunctionType(code, names)()
    if running is not None:
        asyncio.run(running)
    return names["value"]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_scripts_come_to_the_answer_of_single_calls(task: Task) -> None:
    assert task.joined([run(CODE.script(script)) for script in task.scripts]) == by_calls(task)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_words_of_another_product_are_put_in_everywhere(task: Task) -> None:
    for script in task.scripts:
        other = CODE_MODE.script(script)
        assert other.count("call_tool(") == script.count("call(")
        assert other.count("json.loads(") == script.count("JSON(")
        assert not any(tool in other for tool in task.tools)


def lists(directory: Path) -> Path:
    """Lists with the tools that the tasks need, and no others."""
    for server, file in SERVERS.items():
        names = {
            name
            for task in TASKS
            for owner, _, name in [each.partition("/") for each in task.tools]
            if owner == server
        }
        tools = [
            {"name": name, "description": f"Does {name}.", "inputSchema": LISTED} for name in sorted(names)
        ]
        (directory / f"{file}.json").write_text(json.dumps({"tools": tools}))
    return directory


@pytest.mark.nightly
def test_each_surface_does_every_task_and_scripts_save_most_of_the_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(lists(tmp_path)), "--seconds", "0"]) == 0
    said = capsys.readouterr().out
    for task in [each.name for each in TASKS] + ["all four"]:
        told = [line for line in said.splitlines() if line.startswith(task)]
        most = told[0].removeprefix(task).split()[0]
        assert most in {"full", "category", "load"}
        assert len(told) == 5


def test_a_list_that_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    assert str(tmp_path / "github.json") in capsys.readouterr().err


@pytest.mark.nightly
def test_calls_of_others_are_measured_while_scripts_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert meanwhile(["--rounds", "1", "--seconds", "0.2", "--scripts", "2"]) in {0, 1}
    said = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in said[1:3]] == ["make calls", "compute"]
