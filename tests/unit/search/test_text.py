"""From text to terms: the same words in every spelling are the same terms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.search.language import MAX_WORD, plain, stem, terms


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("read_file", ["read", "file"]),
        ("readFile", ["read", "file"]),
        ("ReadFile", ["read", "file"]),
        ("read-file/path.txt", ["read", "file", "path", "txt"]),
        ("getHTTPUrl2", ["get", "http", "url", "2"]),
        ("HTTPServer", ["http"]),
        ("Reading the FILES, please!", ["read", "file"]),
        ("\ufb01le \uff26\uff49\uff4c\uff45", ["file", "file"]),
        ("file file", ["file", "file"]),
        ("获取当前日期", ["获取", "取当", "当前", "前日", "日期"]),
        ("読", ["読"]),
        ("git日志log", ["git", "日志", "log"]),
        ("größe", ["größe"]),
        ("", []),
        ("🛠 \x00\ud800 --- ...", []),
        ("the of and a", []),
    ],
)
def test_words_are_split_folded_and_stemmed(text: str, found: list[str]) -> None:
    assert terms(text) == found


@pytest.mark.parametrize(
    "words", [("repository", "repositories"), ("commit", "commits", "committed"), ("image", "images")]
)
def test_forms_of_a_word_have_one_stem(words: tuple[str, ...]) -> None:
    assert len({stem(word) for word in words}) == 1


def test_what_is_too_long_to_be_a_word_is_none() -> None:
    assert terms("a" * (MAX_WORD + 1)) == []
    assert all(len(term) <= MAX_WORD for term in terms("é" * 1000))


@pytest.mark.parametrize("name", ["read_file", "Read File", "read-file", "READ__FILE", " read/file "])
def test_names_are_compared_whatever_stands_between_their_words(name: str) -> None:
    assert plain(name) == "read_file"


@given(st.text())
def test_any_text_has_terms_or_none(text: str) -> None:
    assert all(terms(text))
    plain(text)
