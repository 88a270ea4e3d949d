"""The static encoder: with weights made up here, and with those that the extra brings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from daemon.search.semantic_static import TOKENS
from daemon.search.vectors import SemanticUnavailable, Vectors, open_encoder
from tests.unit.search.semantic_fakes import servers

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.search.vectors import Encoder

VOCABULARY = {"[UNK]": 0, "north": 1, "south": 2, "east": 3, "far": 4}
COMPASS = np.array([[9, 9], [0, 1], [0, -1], [1, 0], [0, 3]], dtype="<f4")


def save(folder: Path, **tensors: np.ndarray[Any, Any]) -> str:
    """A model's folder as model2vec writes it."""
    tokenizer = Tokenizer(WordLevel(VOCABULARY, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file(tensors, folder / "model.safetensors", metadata={"made": "up"})
    return str(folder)


def vector(encoder: Encoder, *texts: str | tuple[float, str]) -> list[float]:
    passage = [text if isinstance(text, tuple) else (1.0, text) for text in texts]
    (encoded,) = encoder.encode([passage])
    return [round(float(number), 3) for number in encoded]


@pytest.mark.parametrize("kind", ["<f2", "<f4", "<f8", "i1"])
def test_a_text_is_the_mean_of_its_tokens_made_a_unit(tmp_path: Path, kind: str) -> None:
    encoder = open_encoder(save(tmp_path, embeddings=COMPASS.astype(kind)))
    assert vector(encoder, "north") == [0.0, 1.0]
    assert vector(encoder, "north east") == [0.707, 0.707]
    assert vector(encoder, "far east") == [0.316, 0.949]


def test_the_texts_of_a_passage_count_alike_whatever_their_length(tmp_path: Path) -> None:
    encoder = open_encoder(save(tmp_path, embeddings=COMPASS))
    assert vector(encoder, "far far far", "east") == [0.707, 0.707]
    assert vector(encoder, (3.0, "north"), (4.0, "east")) == [0.8, 0.6]


@pytest.mark.parametrize("text", ["", "unheard of", "north south"])
def test_a_text_that_means_nothing_is_zero(tmp_path: Path, text: str) -> None:
    assert vector(open_encoder(save(tmp_path, embeddings=COMPASS)), text) == [0.0, 0.0]


def test_unknown_words_do_not_count(tmp_path: Path) -> None:
    assert vector(open_encoder(save(tmp_path, embeddings=COMPASS)), "north whatever") == [0.0, 1.0]


def test_tokens_beyond_the_table_do_not_count(tmp_path: Path) -> None:
    assert vector(open_encoder(save(tmp_path, embeddings=COMPASS[:3])), "north east") == [0.0, 1.0]


def test_tokens_beyond_the_bound_do_not_count(tmp_path: Path) -> None:
    encoder = open_encoder(save(tmp_path, embeddings=COMPASS))
    assert vector(encoder, "north " * TOKENS + "east " * 9999) == [0.0, 1.0]


def test_tokens_may_have_weights_and_share_rows(tmp_path: Path) -> None:
    rows = np.array([0, 1, 2, 0, 0], dtype="<i8")
    weights = np.array([1, 3, 1, 4, 1], dtype="<f8")
    table = np.array([[1, 0], [0, 1], [0, -1]], dtype="<f4")
    encoder = open_encoder(save(tmp_path, embeddings=table, weights=weights, mapping=rows))
    assert vector(encoder, "north east") == [0.8, 0.6]
    assert vector(encoder, "far") == [1.0, 0.0]


def test_a_table_tells_what_is_closest(tmp_path: Path) -> None:
    encoder = open_encoder(save(tmp_path, embeddings=COMPASS))
    vectors = encoder.encode([[(1.0, text)] for text in ("south", "east", "north", "north east", "north")])
    table = encoder.table(vectors)
    (query,) = encoder.encode([[(1.0, "north")]])
    assert [row for row, _ in table.closest(query, 3, None)] == [2, 4, 3]
    assert [row for row, _ in table.closest(query, 9, [1, 0, 3])] == [3, 1, 0]
    assert [round(cosine, 3) for _, cosine in table.closest(query, 9, [0, 3])] == [0.707, -1.0]
    assert table.row(1).tolist() == vectors[1].tolist()


def _damage(folder: Path, how: str) -> None:
    weights = folder / "model.safetensors"
    match how:
        case "no folder":
            weights.unlink()
            (folder / "tokenizer.json").unlink()
        case "no tokenizer":
            (folder / "tokenizer.json").unlink()
        case "a tokenizer of something else":
            (folder / "tokenizer.json").write_text("{}")
        case "cut short":
            weights.write_bytes(weights.read_bytes()[:-8])
        case "empty":
            weights.write_bytes(b"")
        case _:
            weights.write_bytes(b"<html>not found</html>" * 99)


@pytest.mark.parametrize(
    "how", ["no folder", "no tokenizer", "a tokenizer of something else", "cut short", "empty", "a web page"]
)
def test_an_unusable_folder_is_refused_by_name(tmp_path: Path, how: str) -> None:
    save(tmp_path, embeddings=COMPASS)
    _damage(tmp_path, how)
    with pytest.raises(SemanticUnavailable, match=r"model\.safetensors"):
        open_encoder(str(tmp_path))


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        ({"other": COMPASS}, "no tensor"),
        ({"embeddings": COMPASS[0]}, "no table"),
        ({"embeddings": COMPASS.astype("<u2")}, "kind uint16"),
        ({"embeddings": COMPASS, "mapping": COMPASS}, "kind float32"),
    ],
)
def test_weights_of_another_kind_are_refused(tmp_path: Path, tensors: dict[str, Any], why: str) -> None:
    with pytest.raises(SemanticUnavailable, match=why):
        open_encoder(save(tmp_path, **tensors))


TOOLS = servers(
    db={"execute_sql": "Run a SQL statement on the database.", "list_tables": "List all tables."},
    files={"remove_path": "Removes a file or a folder from disk.", "read_text": "Read the text of a file."},
    sky={"get_forecast": "Temperature, rain and wind in the coming days.", "get_alerts": "Storm warnings."},
    mail={"send_message": "Send an e-mail to somebody.", "search_inbox": "Search the messages in the inbox."},
)


@pytest.fixture(scope="module")
def packaged() -> Vectors:
    """The tools, encoded with the weights that the extra brings."""
    return Vectors(open_encoder(None)).updated(TOOLS)


@pytest.mark.parametrize(
    ("query", "tool"),
    [
        ("delete a directory", ("files", "remove_path")),
        ("what will the weather be tomorrow", ("sky", "get_forecast")),
        ("hurricane danger", ("sky", "get_alerts")),
        ("write to my colleague by email", ("mail", "send_message")),
        ("query postgres", ("db", "execute_sql")),
    ],
)
def test_the_packaged_weights_know_paraphrases(packaged: Vectors, query: str, tool: tuple[str, str]) -> None:
    assert next(iter(packaged.similar([query]))) == tool


@pytest.mark.parametrize("query", ["\ud800", "\0\x01\x02", "🎉" * 1000, "x" * 1_000_000, "\u202e\u0301" * 500])
def test_hostile_queries_are_answered(packaged: Vectors, query: str) -> None:
    assert len(packaged.similar([query])) == len(packaged) // 2
