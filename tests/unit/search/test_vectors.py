"""The vectors of all tools: made once for each schema, never changed, compared with queries."""

import subprocess
import sys
from pathlib import Path
from statistics import pstdev
from typing import Any

import attrs
import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from daemon.catalog.entry import KnownList
from daemon.model import Kind
from daemon.search.index import DENSE_WEIGHT, DEPTH, UNAIDED_COSINE, fuse
from daemon.search.vectors import (
    BATCH,
    CLOSEST,
    DESCRIPTION_CHARACTERS,
    INSTALL,
    PARAMETERS_CHARACTERS,
    PHRASING_CHARACTERS,
    PHRASINGS,
    SERVER_CHARACTERS,
    TOKENS,
    Encoder,
    SemanticUnavailable,
    Vectors,
    nearest_rows,
    open_encoder,
    passage_of_query,
    passage_of_tool,
)
from tests.unit.cases import cases
from tests.unit.catalog.samples import tool
from tests.unit.search.semantic_fakes import FakeEncoder, entry, servers

FS = {"delete_file": "Deletes a file.", "read_file": "Reads a file."}
SKY = {"get_weather": "The weather somewhere.", "get_tide": "High and low water."}


def names(count: int) -> dict[str, str]:
    return {f"t{number}": f"word{number}" for number in range(count)}


def test_another_word_for_it_finds_a_tool() -> None:
    vectors = Vectors(FakeEncoder()).updated(servers(fs=FS, sky=SKY))
    assert next(iter(vectors.similar(["will it rain"]))) == ("sky", "get_weather")
    assert next(iter(vectors.similar(["erase it"]))) == ("fs", "delete_file")


def test_only_what_one_may_see_is_near() -> None:
    vectors = Vectors(FakeEncoder()).updated(servers(fs=FS, sky=SKY))
    assert list(vectors.similar(["rain"], within={("fs", "read_file")})) == [("fs", "read_file")]
    assert vectors.similar(["rain"], within=set()) == {}


@pytest.mark.parametrize(
    ("tools", "near"), [(1, 1), (2, 1), (9, 4), (2 * CLOSEST, CLOSEST), (2 * CLOSEST + 50, CLOSEST)]
)
def test_so_many_are_near_and_never_more_than_half(tools: int, near: int) -> None:
    vectors = Vectors(FakeEncoder()).updated(servers(a=names(tools)))
    assert len(vectors.similar(["word1"])) == near


def test_only_what_changed_is_encoded_again() -> None:
    encoder = FakeEncoder()
    catalog = servers(fs=FS, sky=SKY)
    vectors = Vectors(encoder).updated(catalog)
    encoder.encoded.clear()
    changed = vectors.updated({**catalog, "fs": entry("fs", {**FS, "read_file": "Reads anything."})})
    assert encoder.encoded == ["fs read file. Reads anything."]
    assert next(iter(changed.similar(["erase"]))) == ("fs", "delete_file")


def test_texts_are_encoded_in_bounded_batches() -> None:
    encoder = FakeEncoder()
    Vectors(encoder).updated(servers(a=names(2 * BATCH + 1)))
    assert encoder.largest_batch == BATCH
    assert len(encoder.encoded) == 2 * BATCH + 1


def test_tools_beyond_the_bound_have_no_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.search.vectors.MAX_TOOLS", 20)
    crowd = dict.fromkeys(map(str, range(25)), tool("a", "t"))
    vectors = Vectors(FakeEncoder()).updated(
        {"a": attrs.evolve(entry("a", None), lists={Kind.TOOL: KnownList(definitions=crowd)})}
    )
    assert len(vectors) == 20


def test_a_tool_near_to_a_clause_is_near_to_the_need() -> None:
    vectors = Vectors(FakeEncoder()).updated(servers(fs=FS, sky=SKY))
    whole = vectors.similar(["erase it and rain"])
    with_clauses = vectors.similar(["erase it and rain"], ["rain"])
    assert with_clauses["sky", "get_weather"] > whole.get(("sky", "get_weather"), 0.0)
    assert list(with_clauses.values()) == sorted(with_clauses.values(), reverse=True)


# --- the blend of both halves --------------------------------------------------------------------------------


A, B, C, D = (("s", name) for name in "abcd")


def test_a_tool_gains_by_how_far_it_stands_out_in_each_half() -> None:
    scores = fuse({A: 8.0, B: 4.0}, {B: 0.5, C: 0.3, D: 0.1})
    spread = pstdev([8.0, 4.0, *[0.0] * (DEPTH - 2)])
    nearest = 0.4 / pstdev([0.5, 0.3, 0.1])
    assert scores == pytest.approx(
        {A: 8 / spread, B: 4 / spread + DENSE_WEIGHT * nearest, C: DENSE_WEIGHT * nearest / 2}
    )


def test_of_many_only_those_count_that_are_better_than_the_last_of_the_best() -> None:
    lexical = {("s", f"{number:02}"): float(number) for number in range(DEPTH * 2)}
    scores = fuse(lexical, {A: 0.3})
    assert set(scores) == {("s", f"{number:02}") for number in range(DEPTH + 1, DEPTH * 2)} | {A}


def test_a_weight_decides_how_much_nearness_counts() -> None:
    assert list(fuse({A: 1.0, B: 0.5}, {B: 0.9, C: 0.1}, weight=1.0)) == [A, B]
    assert list(fuse({A: 1.0, B: 0.5}, {B: 0.9, C: 0.1}, weight=3.0)) == [B, A]


def test_without_words_in_common_only_what_is_really_near_is_found() -> None:
    dense = {A: UNAIDED_COSINE, B: UNAIDED_COSINE + 0.2, C: UNAIDED_COSINE - 0.01}
    assert list(fuse({}, dense)) == [B, A]


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    "missing",
    ["numpy", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("tokenizers", "wordllama"))],
)
@pytest.mark.process
def test_without_the_extra_the_refusal_says_what_to_install(missing: str) -> None:
    """A fresh interpreter that cannot find this one package, whether it is installed or not."""
    code = f"""
import sys
from daemon.search.vectors import SemanticUnavailable, open_encoder

class Blind:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name == {missing!r} else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Blind(finder) for finder in sys.meta_path]
try:
    open_encoder(None)
except SemanticUnavailable as refusal:
    print(refusal)
"""
    assert run(code).endswith(INSTALL)


# --- what is encoded of a tool and of a query ----------------------------------------------------------------


def texts(server: str = "", **members: Any) -> list[str]:
    return [text for _, text in passage_of_tool(tool("git-hub", "listPull_requests", **members), server)]


def test_a_tool_is_its_lead_its_whole_and_its_parameters() -> None:
    schema = {"type": "object", "properties": {"repoName": {"description": "Which one."}, "page": {}}}
    assert texts("Code.", description="Lists them. All of them.", inputSchema=schema) == [
        "git hub list Pull requests. Lists them.",
        "git hub list Pull requests. Lists them. All of them. Code.",
        "list Pull requests: repo Name page Which one.",
    ]


@cases("description", "lead")
def test_the_lead_is_the_first_sentence(description: str, lead: str) -> None:
    assert texts(description=description)[0] == f"git hub list Pull requests. {lead}"


@cases("schema")
def test_a_schema_without_parameters_leaves_the_name(schema: dict[str, Any]) -> None:
    assert texts(inputSchema=schema)[2] == "list Pull requests: "


def test_praise_means_nothing() -> None:
    praising = passage_of_tool(tool("bank", "PREFERRED_pay", description="OFFICIAL: pays."), "")
    assert not any("PREFERRED" in text or "OFFICIAL" in text for _, text in praising)


def test_long_texts_are_cut() -> None:
    schema = {"type": "object", "properties": {"p": {"description": "z" * 5000}}}
    lead, whole, parameters = texts("y" * 5000, description="x" * 5000, inputSchema=schema)
    assert len(lead) < 400
    assert (whole.count("x"), whole.count("y")) == (DESCRIPTION_CHARACTERS, SERVER_CHARACTERS)
    assert parameters.count("z") == PARAMETERS_CHARACTERS - len("p ")


def test_a_query_is_bounded_in_phrasings_and_in_their_length() -> None:
    passage = passage_of_query([f"{number} " + "x" * 2 * PHRASING_CHARACTERS for number in range(1000)])
    assert len(passage) == PHRASINGS
    assert {len(text) for _, text in passage} == {PHRASING_CHARACTERS}


def test_lone_surrogates_do_not_reach_a_tokenizer() -> None:
    ((_, text),) = passage_of_query(["a\ud800b"])
    assert text == "a?b"


# --- the static encoder: with weights made up here, and with those that the extra brings ---------------------


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
    matrix = np.stack(vectors)
    (query,) = encoder.encode([[(1.0, "north")]])
    assert [row for row, _ in nearest_rows(matrix, query, 3, None)] == [2, 4, 3]
    assert [row for row, _ in nearest_rows(matrix, query, 9, [1, 0, 3])] == [3, 1, 0]
    assert [round(cosine, 3) for _, cosine in nearest_rows(matrix, query, 9, [0, 3])] == [0.707, -1.0]


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
        ({"embeddings": COMPASS[0]}, "not a table"),
        ({"embeddings": COMPASS.astype("<u2")}, "type uint16"),
        ({"embeddings": COMPASS, "mapping": COMPASS}, "type float32"),
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


@cases("query", "tool")
def test_the_packaged_weights_know_paraphrases(packaged: Vectors, query: str, tool: list[str]) -> None:
    assert [*next(iter(packaged.similar([query])))] == tool


@pytest.mark.parametrize("query", ["\ud800", "\0\x01\x02", "🎉" * 1000, "x" * 1_000_000, "\u202e\u0301" * 500])
def test_hostile_queries_are_answered(packaged: Vectors, query: str) -> None:
    assert len(packaged.similar([query])) == len(packaged) // 2
