"""The documents name files and anchors that are there, in plain words; what the code holds is current.

Dotted names in them: `test_references.py`.
"""

import functools
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").glob("*.md")]

# A path is as the repository's root has it, or as daemon/ has it; NAME stands for one that the reader chooses.
_PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|toml))(?:::\w+)?`")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


_REFERENCE = re.compile(r"<!-- (?:reference: .*?<!-- reference ends|.*?) -->", re.DOTALL)
_FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_ANCHOR = re.compile(r"\]\(([\w./-]*)#([^)]+)\)")
_QUESTION = re.compile(r"(?:Who|What|Whom|Whose|Where|How)\b")
_FORBIDDEN = re.compile(
    r"\b(?:anew|whoever|is none|is told of|beside|of ours|for ever|all that|nobody's|as \w+ has it"
    r"|design\.md|reviews?/\w+\.md|seed 0\d+)\b",
    re.IGNORECASE,
)
"""Words that are read twice, and papers that are not in this repository."""


def is_there(path: str) -> bool:
    return any((base / path).exists() for base in (ROOT, ROOT / "daemon"))


OTHERS = {"epochs.py", "tcp.py"}
"""Files of the reader's own."""


@functools.cache
def names() -> set[str]:
    """The name of every file that a document may name without its folder."""
    folders = ("daemon", "tests", "scripts", "bench")
    return {path.name for path in ROOT.iterdir()} | {
        path.name for folder in folders for path in (ROOT / folder).rglob("*.*")
    }


def is_named(path: str) -> bool:
    """Whether a file that is named without its folder is somewhere."""
    return "/" in path or "NAME" in path or path in names() | OTHERS


def is_meant(path: str) -> bool:
    """Whether a path is one of this repository's: it begins with a folder of it, or of daemon/."""
    first = path.partition("/")[0]
    return "NAME" not in path and "/" in path and is_there(first) and first not in {"", ".."}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_that_a_document_names_is_there(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    gone = [path for path in _PATH.findall(text) if is_meant(path) and not is_there(path)]
    gone += [path for path in _PATH.findall(text) if not is_named(path)]
    gone += [link for link in _LINK.findall(text) if not (document.parent / link).exists()]
    assert not gone


def headings(document: Path) -> list[str]:
    """The headings of a document, without those that a fence quotes."""
    return _HEADING.findall(_FENCED.sub("", document.read_text(encoding="utf-8")))


@functools.cache
def anchors(document: Path) -> set[str]:
    """The anchors that a forge makes of the headings."""
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings(document)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_anchor_that_a_document_links_to_is_there(document: Path) -> None:
    links = _ANCHOR.findall(document.read_text(encoding="utf-8"))
    assert not [
        f"{path}#{anchor}"
        for path, anchor in links
        if anchor not in anchors((document.parent / path).resolve() if path else document)
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_no_heading_asks_and_no_word_is_read_twice(document: Path) -> None:
    text = _REFERENCE.sub("", _FENCED.sub("", document.read_text(encoding="utf-8")))
    assert not [heading for heading in headings(document) if _QUESTION.match(heading)]
    assert not _FORBIDDEN.findall(text)


def test_the_readme_leads_to_every_page() -> None:
    linked = set(_LINK.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    assert not {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} - linked


def test_the_lists_that_the_code_holds_are_current() -> None:
    current = runpy.run_path(str(ROOT / "scripts" / "reference"))["current"]
    pages = {path.name: path.read_text(encoding="utf-8") for path in DOCUMENTS}
    assert not [name for name, text in pages.items() if current(text) != text], "type `make reference`"
