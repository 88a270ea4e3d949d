"""`mcpd summaries`: the model that shortens descriptions: how it is doing, what it is sent, which one it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from daemon.errors import InvalidArguments
from daemon.kit.wording import closest, hint, quoted
from daemon.operators.base import Command, Refused
from daemon.operators.setting import change
from daemon.setup.setting import Setting

if TYPE_CHECKING:
    from daemon.operators.base import OperatorContext, SummaryModel


class SummariesParams(msgspec.Struct):
    """What to do besides showing the state; at most one of these."""

    models: bool = False
    """Ask the endpoint what it offers."""
    model: str | None = None
    """Choose this model."""
    test: str | None = None
    """Put this question to the model; empty: one about a tool that mcpd has made up."""


async def summaries(context: OperatorContext, params: SummariesParams) -> dict[str, object]:
    """Show the state of summaries; ask the endpoint for its models, choose one, or put a question to it.

    Returns:
        `state`: the progress by field (`actors.summarizing`), None if no model is configured; `prompt`: the
        fixed instructions; `sends`: what leaves the machine; besides, by what was asked for, `models` (names),
        `changed` (`setting.change`), or `test` (`SummaryModel.test`).

    Raises:
        InvalidArguments: the endpoint offers no such model, or the question is too long.
        McpdError: the endpoint cannot be asked; the text names it and the cause.
        Refused: the file cannot be written.
    """
    if context.summary_model is None:
        raise Refused("this daemon asks no model")
    asked, told = context.summary_model(), dict[str, object]()
    if params.models:
        told["models"] = list(await asked.models())
    elif params.model is not None:
        told["changed"] = await _choose(context, asked, params.model)
    elif params.test is not None:
        told["test"] = await asked.test(params.test)
    return {
        "state": context.counters.summarizer(),
        "config": context.facts.config,
        "prompt": asked.prompt,
        "sends": asked.sends,
        **told,
    }


SUMMARIES = Command("summaries", SummariesParams, summaries)


async def _choose(context: OperatorContext, asked: SummaryModel, model: str) -> dict[str, object]:
    """Write the model's name, if the endpoint offers it."""
    offered = await asked.models()
    if model not in offered:
        # An endpoint may offer hundreds.
        said = hint(model, offered) if closest(model, offered) else "`mcpd summaries --models` lists them."
        raise InvalidArguments(
            f"the endpoint lists no model {quoted(model)}. {said} If it has one all the same, write it at"
            f" $.summaries.model in {context.facts.config}, then `mcpd reload`"
        )
    command = f"mcpd summaries --model {model}"
    return await change(context, Setting(trail=("summaries", "model"), value=model), command)
