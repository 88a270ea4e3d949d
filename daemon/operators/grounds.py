"""Why a client has its surface, in words for operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.surfaces.fitting import Grounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.surfaces.fitting import SurfaceChoice

_WORDS: Mapping[Grounds, str] = {
    Grounds.SWITCHED_OFF: "loading on demand is switched off (lazy)",
    Grounds.ASKED_FOR: "asked for with --surface or in the URL",
    Grounds.ASKED_FOR_LAZY: "asked for with --lazy",
    Grounds.DEFERRED_LOADING: "the profile says so with deferredLoading",
    Grounds.NAMED_SERVERS: "asked for with --server or in the URL",
    Grounds.PROFILE: "the profile names it",
    Grounds.UNKNOWN_CLIENT: "nothing is known of this client ({client})",
    Grounds.SILENT_CLIENT: "the client has not said what it is",
    Grounds.OLDER_CLIENT: "{client} is older than {since}, the first that searches tools itself",
    Grounds.UNREADABLE_VERSION: "{client} may be older than {since}, the first that searches tools itself",
    Grounds.SEARCHES_ITSELF: "{client} searches tools itself, {tools:,} tools are within its {most:,}",
    Grounds.TOO_MANY_TOOLS: "{client} searches tools itself, but {tools:,} tools are more than its {most:,}",
}


def why(choice: SurfaceChoice) -> str:
    """The grounds of a surface in one clause, which stands after its name and a colon."""
    since = ".".join(map(str, choice.since))
    return _WORDS[choice.grounds].format(
        client=choice.client.text, since=since, tools=choice.tools, most=choice.most
    )
