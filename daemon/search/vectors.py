"""Optional search by meaning: the vectors of all tools, compared with a query's; `Vectors` is immutable.

A text's vector is the mean of its tokens' vectors: a query takes 0.05 ms (no network, no inference), so the
event loop may encode it. The weights come from the package `wordllama`, whose code never runs, or from a folder
in model2vec's format.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import msgspec

from daemon.catalog.snapshot import ServerEntry
from daemon.errors import McpdError
from daemon.kit.later import later
from daemon.model import Tool, ToolKey
from daemon.protocol import decoded
from daemon.search.language import without_praise

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from safetensors.numpy import load
    from tokenizers import Tokenizer
else:  # 0.15 s and 20 MiB, of an extra
    np, load = later("numpy"), later("safetensors.numpy", "load")
    Tokenizer = later("tokenizers", "Tokenizer")

Passage = Sequence[tuple[float, str]]
"""Weighted texts that make one vector: the normalised sum of their unit vectors."""

Vector: TypeAlias = "NDArray[np.float32]"
"""A unit vector; also a matrix whose rows are unit vectors."""

INSTALL = "pip install 'mcpd-supervisor[semantic]'"
"""The command that errors quote."""

PACKAGE = "wordllama"
"""The package whose wheel has weights of 256 dimensions for 32,000 tokens (16 MiB) and their tokenizer; MIT."""

PACKAGED_WEIGHTS = "weights/l2_supercat_256.safetensors"
PACKAGED_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"

NAMES = ("embedding.weight", "embeddings")
"""The names of the tensor with the vectors, in wordllama and model2vec."""

TOKENS = 512
"""Most tokens of a text: more than nearly all descriptions have, and 0.5 ms at most."""

TINY = 1e-12
"""The length below which a vector means that no token is known."""


class SemanticUnavailable(McpdError):
    """Packages or weights are missing or unreadable; the text says how to proceed."""


@attrs.define(eq=False)
class Encoder:
    """Averages token vectors with numpy."""

    _tokenizer: Tokenizer
    _embeddings: NDArray[Any] = attrs.field(repr=False)
    """One row for each token or group of tokens, in the file's number type (16 MiB)."""
    _weights: NDArray[Any] | None = attrs.field(default=None, repr=False)
    _rows: NDArray[Any] | None = attrs.field(default=None, repr=False)
    _unknown: int | None = None
    """The token for unknown words, which is ignored."""

    def encode(self, passages: Sequence[Passage]) -> list[Vector]:
        """A unit vector per passage; zero if no token is known."""
        return [self._passage(passage) for passage in passages]

    def _passage(self, passage: Passage) -> Vector:
        total = np.zeros(self._embeddings.shape[1], dtype=np.float32)
        for weight, text in passage:
            total += np.float32(weight) * _unit(self._text(text))
        return _unit(total)

    def _text(self, text: str) -> Vector:
        # One by one: the batch call starts a thread pool, and this process starts children.
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids[:TOKENS]
        tokens = np.asarray([token for token in ids if self._means(token)], dtype=np.int64)
        if not len(tokens):
            return np.zeros(self._embeddings.shape[1], dtype=np.float32)
        vectors = self._embeddings[tokens if self._rows is None else self._rows[tokens]].astype(np.float32)
        if self._weights is not None:
            vectors *= self._weights[tokens, np.newaxis].astype(np.float32)
        mean: Vector = vectors.mean(axis=0)
        return mean

    def _means(self, token: int) -> bool:
        return token < len(self._embeddings if self._rows is None else self._rows) and token != self._unknown


def open_encoder(model: str | None = None) -> Encoder:
    """Load the encoder from a model2vec folder, or from the extra; blocks. Raises `SemanticUnavailable`."""
    weights, tokenizer = (
        _packaged() if model is None else (f"{model}/model.safetensors", f"{model}/tokenizer.json")
    )
    try:
        return _encoder(weights, tokenizer)
    except ImportError as error:
        raise SemanticUnavailable(f"semantic search needs more packages ({error}): {INSTALL}") from error
    # The tokenizers library raises plain Exceptions about its file.
    except Exception as error:
        raise SemanticUnavailable(
            f"the sentence encoder cannot be loaded from {weights} and {tokenizer}: {error}"
        ) from error


def _packaged() -> tuple[str, str]:
    """The paths of the package's weights and tokenizer, found without running its code."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise SemanticUnavailable(f"semantic search needs the weights of the package {PACKAGE}: {INSTALL}")
    folder = spec.submodule_search_locations[0]
    return f"{folder}/{PACKAGED_WEIGHTS}", f"{folder}/{PACKAGED_TOKENIZER}"


def _encoder(weights: str, tokenizer: str) -> Encoder:
    # Read, not mapped: truncating a mapped file would end the daemon with SIGBUS.
    tensors = load(np.fromfile(weights, dtype="u1").tobytes())
    found = next((name for name in NAMES if name in tensors), None)
    if found is None:
        raise ValueError(f"the file has no tensor {' or '.join(NAMES)}")
    for name, kinds in ((found, "fi"), ("weights", "fi"), ("mapping", "i")):
        if name in tensors and tensors[name].dtype.kind not in kinds:
            raise ValueError(f"mcpd cannot use numbers of type {tensors[name].dtype} as {name}")
    reader = Tokenizer.from_file(tokenizer)
    # A tokenizer's file may request its original model's padding and length.
    reader.no_padding()
    reader.no_truncation()
    _do_not_remember(reader)
    if tensors[found].ndim != len(("tokens", "dimensions")):
        raise ValueError(f"{found} is not a table")
    unknown = getattr(reader.model, "unk_token", None)
    return Encoder(
        tokenizer=reader,
        embeddings=tensors[found],
        weights=tensors.get("weights"),
        rows=tensors.get("mapping"),
        unknown=None if unknown is None else reader.token_to_id(unknown),
    )


def _do_not_remember(reader: Tokenizer) -> None:
    """Disable the tokenizer's cache of texts, 60 MiB at 9,000 tools, as no text is encoded twice."""
    resize = getattr(reader.model, "_resize_cache", None)
    if resize is not None:
        resize(0)


def _unit(vector: Vector) -> Vector:
    length = float(np.linalg.norm(vector))
    return vector / np.float32(length) if length > TINY else np.zeros_like(vector)


def nearest_rows(
    matrix: Vector, query: Vector, count: int, rows: Sequence[int] | None
) -> list[tuple[int, float]]:
    """The `count` nearest rows of a matrix (of `rows`, if given) with cosines, best first."""
    cosines = matrix @ query
    among = np.arange(len(cosines)) if rows is None else np.asarray(rows, dtype=np.int64)
    near = cosines[among]
    order = np.argsort(-near, kind="stable")[:count]
    return list(zip(among[order].tolist(), near[order].tolist(), strict=True))


MAX_TOOLS = 20_000
"""Most tools with vectors: 20 MiB of 256 floats each, twice the largest public catalogue."""

BATCH = 64
"""Tools encoded together, which limits the texts in memory to about 100 kB."""

CLOSEST = 100
"""Most tools returned for a query, at most half of all: the blended score counts from the farthest."""

MAX_CLAUSES = 4
"""Most clauses compared separately, at up to 2 ms each among ten thousand tools."""

CLAUSE = 0.5
"""The weight of the nearest clause relative to the whole query."""

Source = tuple[str, str, str]
"""The texts behind a vector: the server, its description, and the tool's schema hash."""


@attrs.frozen
class Vectors:
    """The vectors of all tools, made by one encoder."""

    _encoder: Encoder
    _rows: Mapping[Source, int] = attrs.field(factory=dict, repr=False)
    _keys: tuple[ToolKey, ...] = attrs.field(default=(), repr=False)
    _matrix: Vector | None = attrs.field(default=None, repr=False)
    _made_from: tuple[tuple[str, str, object], ...] = attrs.field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self._keys)

    def covers(self, servers: Mapping[str, ServerEntry]) -> bool:
        """Whether these are the vectors of exactly these tools; compares identities."""
        made_from = _fingerprint(servers)
        return len(made_from) == len(self._made_from) and all(
            ours[:2] == theirs[:2] and ours[2] is theirs[2]
            for ours, theirs in zip(self._made_from, made_from, strict=True)
        )

    def updated(self, servers: Mapping[str, ServerEntry]) -> Vectors:
        """The vectors of these servers' tools; this object if current. Blocks: call it in a worker thread."""
        if self.covers(servers):
            return self
        places = dict(list(_places(servers))[:MAX_TOOLS])
        sources = {key: _source(tool, description) for key, (tool, description) in places.items()}
        vectors = self._with_missing({sources[key]: place for key, place in places.items()})
        return Vectors(
            encoder=self._encoder,
            rows={source: row for row, source in enumerate(sources.values())},
            keys=tuple(places),
            matrix=np.stack([vectors[source] for source in sources.values()]) if places else None,
            made_from=_fingerprint(servers),
        )

    def similar(
        self, phrasings: Sequence[str], clauses: Sequence[str] = (), *, within: Container[ToolKey] | None = None
    ) -> dict[ToolKey, float]:
        """The tools nearest to a query with cosines, best first; at most `CLOSEST` and half of all.

        Adds the phrasings' vectors, and half of the cosine to the nearest clause. `within` None: all tools.
        """
        passage = passage_of_query(phrasings)
        rows = None if within is None else [row for row, key in enumerate(self._keys) if key in within]
        total = len(self._keys) if rows is None else len(rows)
        if self._matrix is None or not passage or not total:
            return {}
        parts = [passage_of_query([clause]) for clause in clauses[:MAX_CLAUSES]]
        query, *rest = self._encoder.encode([passage, *parts])
        count = min(CLOSEST, max(1, total // 2))
        near = dict(nearest_rows(self._matrix, query, count, rows))
        nearest: dict[int, float] = {}
        for part in rest:
            for row, cosine in nearest_rows(self._matrix, part, count, rows):
                nearest[row] = max(cosine, nearest.get(row, 0.0))
        for row, cosine in nearest.items():
            near[row] = near.get(row, 0.0) + CLAUSE * cosine
        ordered = sorted(near.items(), key=lambda pair: -pair[1]) if nearest else near.items()
        return {self._keys[row]: cosine for row, cosine in ordered}

    def _with_missing(self, wanted: Mapping[Source, tuple[Tool, str]]) -> dict[Source, Vector]:
        missing = [source for source in wanted if source not in self._rows]
        matrix = self._matrix
        vectors = {} if matrix is None else {source: matrix[row] for source, row in self._rows.items()}
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            passages = [passage_of_tool(*wanted[source]) for source in batch]
            vectors.update(zip(batch, self._encoder.encode(passages), strict=True))
        return vectors


def _fingerprint(servers: Mapping[str, ServerEntry]) -> tuple[tuple[str, str, object], ...]:
    return tuple((name, entry.description, entry.tools) for name, entry in servers.items())


def _places(servers: Mapping[str, ServerEntry]) -> Iterator[tuple[ToolKey, tuple[Tool, str]]]:
    for server, entry in servers.items():
        for name, tool in entry.for_models.items():
            yield (server, name), (tool, entry.description)


def _source(tool: Tool, description: str) -> Source:
    return tool.server, description, tool.schema_hash


LEAD_WEIGHT = 1.0
"""The weight of name and first sentence; three summed texts beat one long text, 0.63 to 0.59 recall@5."""

WHOLE_WEIGHT = 1.0
"""The weight of the name, the whole description and the server's purpose."""

PARAMETERS_WEIGHT = 0.5
"""The weight of parameters, which tell similar tools apart; full weight hurts where they are generic."""

LEAD_CHARACTERS = 300
"""Most characters of a first sentence; a longer one is not a sentence."""

DESCRIPTION_CHARACTERS = 1500
"""Most characters of a description: the mean of more words says less, and a hostile one takes 1 ms at most."""

SERVER_CHARACTERS = 300
"""Most characters of a server's description, so that it does not outweigh the tool's words."""

PARAMETERS_CHARACTERS = 800
"""Most characters of parameters: about a dozen parameters."""

PHRASINGS = 8
"""Most encoded phrasings: more add nothing, at up to a millisecond each."""

PHRASING_CHARACTERS = 1000
"""Most characters of one phrasing: longer than any typed request."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s|[\n。]")
_BOUNDARY = re.compile(r"[_\-./]+|(?<=[a-z0-9])(?=[A-Z])")


def passage_of_tool(tool: Tool, server_description: str) -> Passage:
    """The texts of a tool: its name and first sentence, its description with its server's, its parameters."""
    called = _spaced(_earnest(tool.name))
    name = f"{_spaced(tool.server)} {called}"
    description = _clean(_earnest(tool.description[:DESCRIPTION_CHARACTERS])).strip()
    lead = _SENTENCE_END.split(description, maxsplit=1)[0][:LEAD_CHARACTERS]
    server = _clean(server_description[:SERVER_CHARACTERS])
    parameters = " ".join(_parameters(tool))[:PARAMETERS_CHARACTERS]
    return (
        (LEAD_WEIGHT, f"{name}. {lead}"),
        (WHOLE_WEIGHT, f"{name}. {description} {server}"),
        (PARAMETERS_WEIGHT, f"{called}: {_clean(parameters)}"),
    )


def passage_of_query(phrasings: Sequence[str]) -> Passage:
    """The texts of a query, equally weighted; empty if all are blank."""
    kept = [_clean(phrasing[:PHRASING_CHARACTERS]).strip() for phrasing in phrasings[:PHRASINGS]]
    return tuple((1.0, phrasing) for phrasing in dict.fromkeys(kept) if phrasing)


def _earnest(text: str) -> str:
    return without_praise(text)[0]


def _spaced(name: str) -> str:
    """A name split into words: encoders know `read file`, not `read_file`."""
    return _BOUNDARY.sub(" ", _clean(name))


def _clean(text: str) -> str:
    """The text without lone surrogates, which tokenizers reject."""
    return text.encode(errors="replace").decode()


def _parameters(tool: Tool) -> Iterator[str]:
    properties = _properties(tool)
    for name in islice(properties, PARAMETERS_CHARACTERS):
        yield _spaced(name[:PARAMETERS_CHARACTERS])
    for described in islice(properties.values(), PARAMETERS_CHARACTERS):
        text = described.get("description") if isinstance(described, dict) else None
        if isinstance(text, str):
            yield text[:PARAMETERS_CHARACTERS]


def _properties(tool: Tool) -> dict[str, Any]:
    schema = decoded(msgspec.json.decode, tool.parts.get("inputSchema", b"{}"))
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties if isinstance(properties, dict) else {}
