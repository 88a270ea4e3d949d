"""`mcpd summaries`: the model that shortens descriptions: its state, the choice of it, a question to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.cli import EX_CONFIG
from daemon.cli.changing import reported
from daemon.cli.control import EX_FAULT
from daemon.cli.options import add_control, add_json, parser
from daemon.cli.own_settings import add_config, asked, write
from daemon.cli.own_settings import in_words as written
from daemon.kit.wording import counted, span
from daemon.safety.escape import visible

if TYPE_CHECKING:
    import argparse

PATIENCE = 120.0
"""Seconds to wait: a model may take `summaries.timeout` to answer, which is a minute unless configured."""


def main(argv: list[str]) -> int:
    """Show the state, list models, choose one, or put a question.

    Returns:
        0: done; 1: the endpoint cannot be asked, offers no such model, or its answer cannot be used; 2: usage;
        3: the daemon is not reachable; 78: the configuration is faulty.
    """
    made = _parser()
    options = made.parse_args(argv)
    if options.config is not None:
        if options.model is None:
            made.error("--config writes the model: name it with --model")
        return reported(lambda: write(options, ("summaries", "model"), options.model))
    params = {"models": options.models, "model": options.model, "test": options.test}
    return asked(options, "summaries", params, in_words, _status)


def _status(answer: dict[str, Any]) -> int:
    return EX_FAULT if answer.get("test", {}).get("fault") else 0


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "summaries",
        "Show how the model that shortens descriptions is doing (`summaries` of the configuration), the fixed"
        " prompt, and what is sent to its endpoint; list the models that the endpoint offers; choose one; or"
        " put a question to it. The choice is written into the configuration and counts at once.",
        examples=(
            "mcpd summaries",
            "mcpd summaries --models",
            "mcpd summaries --model gpt-5-mini",
            "mcpd summaries --test",
            "mcpd summaries --test 'What is a tool?'",
        ),
        exits={
            0: "done",
            1: "the endpoint cannot be asked, it lists no such model, or its answer cannot be used",
            EX_CONFIG: "the configuration is faulty: nothing was changed",
        },
    )
    only = made.add_mutually_exclusive_group()
    only.add_argument("--models", action="store_true", help="list the models that the endpoint offers")
    only.add_argument("--model", metavar="NAME", help="choose this one of them")
    only.add_argument(
        "--test",
        metavar="QUESTION",
        nargs="?",
        const="",
        help="put a question to the model, behind the fixed prompt; without QUESTION: one about a tool that"
        " mcpd has made up, and whether the answer can be used",
    )
    add_config(made)
    add_json(made)
    add_control(made, PATIENCE)
    return made


def in_words(answer: dict[str, Any]) -> str:
    """What was asked for; else the state, the prompt and what is sent where."""
    if "models" in answer:
        lines = _models(answer)
    elif "changed" in answer:
        lines = [written(answer["changed"])]
    elif "test" in answer:
        lines = _test(answer["test"])
    else:
        lines = _state(answer)
    return "\n".join(visible(line) for line in lines)


def _models(answer: dict[str, Any]) -> list[str]:
    chosen = (answer["state"] or {}).get("model")
    if not answer["models"]:
        return ["the endpoint lists no models"]
    return [f"{'*' if name == chosen else ' '} {name}" for name in answer["models"]]


def _test(test: dict[str, Any]) -> list[str]:
    counts = [
        counted(number, f"token {word}", f"tokens {word}")
        for number, word in ((test["tokensRead"], "read"), (test["tokensWritten"], "written"))
        if number is not None
    ]
    lines = [*test["answer"].splitlines(), "", ", ".join([span(test["seconds"]), *counts])]
    return [*lines, f"it cannot be used: {test['fault']}"] if test["fault"] else lines


def _state(answer: dict[str, Any]) -> list[str]:
    state = answer["state"]
    if state is None:
        return [f"no model is configured (`summaries` in {answer['config']}): descriptions are cut"]
    lines = [f"{state['model']} at {state['endpoint']}"]
    if state.get("off"):
        lines.append(state["off"])
    if "asked" in state:
        asked = counted(state["asked"], "question")
        lines.append(f"{asked}, {state['answered']} answered; {counted(state['sentences'], 'sentence')} taken,")
        lines[-1] += f" {state['refused']} refused; {state['waiting']} waiting, {state['given_up']} given up"
    if state.get("last_error"):
        lines.append(f"last error: {state['last_error']}")
    sent = f"What is sent to {state['endpoint']}: {answer['sends']}"
    prompt = ["  " + line for line in answer["prompt"].splitlines()]
    return [*lines, "", sent, "", "The prompt, which cannot be changed:", *prompt]
