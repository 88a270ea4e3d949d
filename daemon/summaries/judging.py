"""Whether a sentence of a model may stand before other models: one plain sentence about a thing, nothing else.

What a server writes about its tools reaches the model that shortens it, and may make it say things to those
who read the catalogue. So a sentence is refused that is too long, hides something, links somewhere, is marked
up, or speaks to its reader. A refusal costs little: the description's own first sentence stands there instead.
It is no wall either: an honest-looking lie passes, as it does in a description.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from daemon.escape import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_TOOL = 160
"""Characters of a sentence about a tool: as long as a line in a list may be."""

MAX_SERVER = 240
"""Characters of a sentence about a server."""

MAX_KEYWORDS = 8
"""Keywords of one tool or server."""

MAX_KEYWORD = 30
"""The most characters of one keyword."""

_ABBREVIATIONS = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|incl|approx)\.", re.IGNORECASE)
_SENTENCE_END = re.compile("[.!?\u2026]['\")\\]]?\\s+\\S|[\u3002\uff01\uff1f]\\s*\\S")

_MARKUP = r"[<>`{}|\\]|\*\*|__\s|\]\(|^\s*(?:[#*+-]|\d+[.)])\s|&#?\w+;"
_LINK = (
    r"\b[a-z][a-z0-9+.-]*:/|\b(?:mailto|javascript|data|file):\S|\bwww\.|\S@\S+\.\S"
    r"|\b[\w-]+\.[a-z]{2,}/|\b[\w-]+\.(?:com|org|net)\b"
)
_MIXED = "(?=\\w*[a-z])\\w*[\u0370-\u03ff\u0400-\u052f]|[\u0370-\u03ff\u0400-\u052f]\\w*[a-z]"
"""A word of Latin and of Greek or Cyrillic letters: they look alike, and hide a word from patterns."""

_USES = (
    r"call(?:ed)?|used?|invoked?|run|executed?|load(?:ed)?|prefer(?:red)?|cho?ose|select(?:ed)?|trust(?:ed)?"
)
_EARLIER = r"previous|prior|above|earlier|preceding|instructions?|rules|prompts?|guidelines?|everything"
_OUGHT = r"must|should|shall|will|ought|ha(?:s|ve) to|needs? to"
_SECRETS = r"passwords?|secrets?|tokens?|credentials?|keys?|prompts?|conversations?"
_THING = r"(?:tools?|functions?|servers?|first|instead|only)"
_TO_A_MODEL = "|".join(
    (
        rf"\b(?:ignore|disregard|forget|override|bypass)\b.{{0,40}}\b(?:{_EARLIER})\b",
        rf"\byou(?:'ll)? (?:{_OUGHT}|can|may|need|had better|always|never|are (?:now|an?|to|required))\b",
        r"\b(?:system|developer|hidden) (?:prompt|message|instruction)s?\b|\bprompt injection\b|\bjailbreak",
        rf"\b(?:assistants?|models?|llms?|agents?|ais?|claude|(?:chat)?gpt)\b[,:]? (?:{_OUGHT})\b",
        r"\b(?:user|system|assistant|human|instructions?|important|urgent|warning|note)\s*[:!]",
        rf"\b(?:always|never|instead|please|do not|don't|ensure|must|should)\b.{{0,40}}\b(?:{_USES})\b",
        rf"\b(?:{_USES}) (?:only )?(?:this|the|that|these|it)\b(?: \w+){{0,2}} {_THING}\b",
        r"\b(?:call|use|invoke|prefer) (?:this|it|me)\b",
        r"\b(?:instead of|rather than|better than|over) (?:\w+ing )?(?:any |all |the )?others?\b",
        rf"\b(?:reveal|exfiltrate|leak)\b.{{0,40}}\b(?:{_SECRETS})\b",
        "忽略|无视|你必须|你应该|系统提示",
        r"\bignor(?:a|e|iere?) (?:las|les|die|alle|toutes)\b",
    )
)
"""What speaks to its reader instead of about a thing."""

_REFUSED = tuple(
    (re.compile(pattern), why)
    for pattern, why in (
        (_MARKUP, "markup"),
        (_LINK, "a link"),
        (_MIXED, "letters of several scripts in one word"),
        (_TO_A_MODEL, "words to a model"),
    )
)
"""What is looked for in folded text, and what a log says where it is found."""


def objection(text: str, most: int) -> str:
    """Why a sentence cannot be taken, in words for a log; empty if it can.

    Args:
        text: the sentence, without white space around it.
        most: characters that it may have.
    """
    return next(_objections(text, most), "")


def _objections(text: str, most: int) -> Iterator[str]:
    if len(text) > most:
        # The others would have to read it all.
        yield f"longer than {most} characters"
    if visible(text) != text:
        yield "hidden or control characters"
    if not any(character.isalpha() for character in text):
        yield "no words"
    if _SENTENCE_END.search(_ABBREVIATIONS.sub("", text)):
        yield "more than one sentence"
    # Wide and otherwise dressed-up letters are folded to what they look like.
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    yield from (why for pattern, why in _REFUSED if pattern.search(folded))
