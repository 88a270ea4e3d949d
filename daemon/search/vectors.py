"""Optional search by meaning: the vectors of all tools, compared with a query's; `Vectors` is immutable."""

from __future__ import annotations

import importlib
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

import attrs
import msgspec

from daemon.catalog.snapshot import ServerEntry
from daemon.errors import McpdError
from daemon.model import Tool, ToolKey
from daemon.protocol import decoded
from daemon.search.language import without_praise

Passage = Sequence[tuple[float, str]]
"""Weighted texts of one vector: the normalised sum of their unit vectors."""

Vector = Any
"""A unit vector in its encoder's form."""

ENCODER = "daemon.search.semantic_static"
"""The only module that imports the extra's packages; it has `open_model(path)`."""

INSTALL = "pip install 'mcpd-supervisor[semantic]'"
"""Quoted in errors."""


class SemanticUnavailable(McpdError):
    """Packages or weights are missing or unreadable; the text says what to do."""


class VectorTable(Protocol):
    """An immutable table of vectors."""

    def row(self, row: int) -> Vector:
        """The vector in a row, without a copy."""

    def closest(self, query: Vector, count: int, rows: Sequence[int] | None) -> Sequence[tuple[int, float]]:
        """The `count` nearest rows (of `rows`, if given) with cosines, best first."""


class Encoder(Protocol):
    """Turns texts into vectors; blocks."""

    def encode(self, passages: Sequence[Passage]) -> Sequence[Vector]:
        """A vector per passage, in order."""

    def table(self, vectors: Sequence[Vector]) -> VectorTable:
        """A table of this encoder's vectors, to search."""


def open_encoder(model: str | None = None) -> Encoder:
    """Load the encoder of a model2vec folder, or the extra's; blocks. Raises `SemanticUnavailable`."""
    try:
        module: Any = importlib.import_module(ENCODER)
    except ImportError as error:
        raise SemanticUnavailable(f"semantic search needs more packages ({error}): {INSTALL}") from error
    encoder: Encoder = module.open_model(model)
    return encoder


MAX_TOOLS = 20_000
"""Tools with vectors: 20 MiB of 256 floats each, twice the largest public catalogue."""

BATCH = 64
"""Tools encoded at a time: limits the texts in memory to about 100 kB."""

CLOSEST = 100
"""Tools returned for a query, at most half of all: the farthest is the zero of the fused score."""

MAX_CLAUSES = 4
"""Clauses compared separately, at up to 2 ms each among ten thousand tools."""

CLAUSE = 0.5
"""The weight of the nearest clause against the whole query."""

Source = tuple[str, str, str]
"""A vector's source: server, server's description, tool's schema hash."""


@attrs.frozen
class Vectors:
    """The vectors of all tools by one encoder."""

    _encoder: Encoder
    _rows: Mapping[Source, int] = attrs.field(factory=dict, repr=False)
    _keys: tuple[ToolKey, ...] = attrs.field(default=(), repr=False)
    _table: VectorTable | None = attrs.field(default=None, repr=False)
    _made_from: tuple[tuple[str, str, object], ...] = attrs.field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self._keys)

    def covers(self, servers: Mapping[str, ServerEntry]) -> bool:
        """Whether these are exactly these tools' vectors; compares identities."""
        made_from = _fingerprint(servers)
        return len(made_from) == len(self._made_from) and all(
            ours[:2] == theirs[:2] and ours[2] is theirs[2]
            for ours, theirs in zip(self._made_from, made_from, strict=True)
        )

    def updated(self, servers: Mapping[str, ServerEntry]) -> Vectors:
        """The vectors of these servers' tools; itself if current. Blocks: call it in a worker thread."""
        if self.covers(servers):
            return self
        places = dict(list(_places(servers))[:MAX_TOOLS])
        sources = {key: _source(tool, description) for key, (tool, description) in places.items()}
        vectors = self._with_missing({sources[key]: place for key, place in places.items()})
        return Vectors(
            encoder=self._encoder,
            rows={source: row for row, source in enumerate(sources.values())},
            keys=tuple(places),
            table=self._encoder.table([vectors[source] for source in sources.values()]) if places else None,
            made_from=_fingerprint(servers),
        )

    def similar(
        self, phrasings: Sequence[str], clauses: Sequence[str] = (), *, within: Container[ToolKey] | None = None
    ) -> dict[ToolKey, float]:
        """The tools nearest to a query with cosines, best first; at most `CLOSEST` and half of all.

        Phrasings' vectors, and half of the cosine to the nearest clause, are added. `within` None: all tools.
        """
        passage = passage_of_query(phrasings)
        rows = None if within is None else [row for row, key in enumerate(self._keys) if key in within]
        total = len(self._keys) if rows is None else len(rows)
        if self._table is None or not passage or not total:
            return {}
        parts = [passage_of_query([clause]) for clause in clauses[:MAX_CLAUSES]]
        query, *rest = self._encoder.encode([passage, *parts])
        count = min(CLOSEST, max(1, total // 2))
        near = dict(self._table.closest(query, count, rows))
        nearest: dict[int, float] = {}
        for part in rest:
            for row, cosine in self._table.closest(part, count, rows):
                nearest[row] = max(cosine, nearest.get(row, 0.0))
        for row, cosine in nearest.items():
            near[row] = near.get(row, 0.0) + CLAUSE * cosine
        ordered = sorted(near.items(), key=lambda pair: -pair[1]) if nearest else near.items()
        return {self._keys[row]: cosine for row, cosine in ordered}

    def _with_missing(self, wanted: Mapping[Source, tuple[Tool, str]]) -> dict[Source, Vector]:
        missing = [source for source in wanted if source not in self._rows]
        vectors = {source: self._table.row(row) for source, row in self._rows.items() if self._table}
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
"""The weight of name, whole description and server's purpose."""

PARAMETERS_WEIGHT = 0.5
"""The weight of parameters, which tell similar tools apart; full weight hurts where they are generic."""

LEAD_CHARACTERS = 300
"""Characters of a first sentence; a longer one is no sentence."""

DESCRIPTION_CHARACTERS = 1500
"""Characters of a description: the mean of more words says less, and a hostile one takes 1 ms at most."""

SERVER_CHARACTERS = 300
"""Characters of a server's description, which must not drown the tool's words."""

PARAMETERS_CHARACTERS = 800
"""Characters of parameters: about a dozen."""

PHRASINGS = 8
"""Encoded phrasings: more say nothing new, at up to a millisecond each."""

PHRASING_CHARACTERS = 1000
"""Characters of one phrasing: longer than any typed request."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s|[\n。]")
_BOUNDARY = re.compile(r"[_\-./]+|(?<=[a-z0-9])(?=[A-Z])")


def passage_of_tool(tool: Tool, server_description: str) -> Passage:
    """The texts of a tool: its lead, its description with its server's, its parameters."""
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
