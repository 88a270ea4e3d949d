"""The dense half of the tool search, an optional extra: what an encoder is, and how its scores are blended.

Nothing of the extra is imported here. `open_encoder` imports the one module that needs it by name, and only
when the configuration asks for it: everybody else pays for none of it.
"""

from __future__ import annotations

import heapq
import importlib
from math import fsum, sqrt
from typing import TYPE_CHECKING, Any, Protocol

from daemon.errors import McpdError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daemon.model import ToolKey

    Passage = Sequence[tuple[float, str]]
    """Weighted texts that become one vector: the sum of their unit vectors, made a unit vector again."""

Vector = Any
"""A unit vector. Only the encoder that made it knows what it is."""

ENCODER = "daemon.search.semantic_static"
"""The only module that imports the extra's packages; it has `open_model(path)`."""

INSTALL = "pip install 'mcpd-supervisor[semantic]'"
"""What a refusal tells the operator to do."""

DENSE_WEIGHT = 0.6
"""What standing out among the nearest counts, against standing out by words. At 0.6 to 0.8, recall and nDCG are
highest over five public sets; from 1.0 on they fall where queries name rare things."""

DEPTH = 50
"""Tools of each half among which one stands out: about as many as anybody looks at."""

UNAIDED_COSINE = 0.35
"""What finds a tool without a word in common: gibberish comes within 0.34 of some tool of 527."""


class SemanticUnavailable(McpdError):
    """The dense half cannot be used: its packages or its weights are missing or unreadable. Says what to do."""


class VectorTable(Protocol):
    """Vectors side by side; never changes."""

    def row(self, row: int) -> Vector:
        """One of them, without a copy."""

    def closest(self, query: Vector, count: int, rows: Sequence[int] | None) -> Sequence[tuple[int, float]]:
        """The `count` rows nearest to a query with their cosines, best first; of `rows` only, if given."""


class Encoder(Protocol):
    """Turns texts into vectors. It may block for as long as encoding takes and knows no event loop."""

    def encode(self, passages: Sequence[Passage]) -> Sequence[Vector]:
        """One vector for each passage, in order."""

    def table(self, vectors: Sequence[Vector]) -> VectorTable:
        """Vectors of this encoder, ready to be compared with queries."""


def open_encoder(model: str | None = None) -> Encoder:
    """Load the weights, blocking (0.3 s): for a worker thread.

    Args:
        model: a folder with `tokenizer.json` and `model.safetensors` (a model2vec model); None for the weights
            that come with the extra. Nothing is ever downloaded.

    Raises:
        SemanticUnavailable: the extra is not installed, or the folder holds no usable model.
    """
    try:
        module: Any = importlib.import_module(ENCODER)
    except ImportError as error:
        raise SemanticUnavailable(f"semantic search needs more packages ({error}): {INSTALL}") from error
    encoder: Encoder = module.open_model(model)
    return encoder


def fuse(
    lexical: Mapping[ToolKey, float], dense: Mapping[ToolKey, float], *, weight: float = DENSE_WEIGHT
) -> dict[ToolKey, float]:
    """Blend the scores of both halves; best first, equal ones in the order of `lexical`, then of `dense`.

    Neither a sum of word weights nor a cosine means the same in two queries. So each counts by how far it
    stands out: what it has over the last of the `DEPTH` best, in standard deviations of those. Without lexical
    scores, only tools nearer than `UNAIDED_COSINE` are found.

    Args:
        lexical: scores above 0 of every tool that shares words with the query.
        dense: cosines of the nearest tools, as `Vectors.similar` returns them.
        weight: what standing out by nearness counts, against standing out by words.
    """
    if not lexical:
        near = {key: cosine for key, cosine in dense.items() if cosine >= UNAIDED_COSINE}
        return dict(heapq.nlargest(len(near), near.items(), key=_score))
    scores = _outstanding(lexical, DEPTH)
    for key, nearness in _outstanding(dense, min(DEPTH, len(dense))).items():
        scores[key] = scores.get(key, 0.0) + weight * nearness
    return dict(sorted(scores.items(), key=_score, reverse=True))


def _outstanding(half: Mapping[ToolKey, float], depth: int) -> dict[ToolKey, float]:
    """By how much each tool stands out among the best; those that do not are left out.

    Args:
        half: scores or cosines.
        depth: how many the best are; tools that are not in `half` are taken to have 0.
    """
    if not half:
        return {}
    best = heapq.nlargest(depth, half.values())
    best += [0.0] * (depth - len(best))
    floor, mean = best[-1], fsum(best) / depth
    spread = sqrt(fsum((value - mean) ** 2 for value in best) / depth)
    if not spread:
        return {key: 1.0 for key, value in half.items() if value >= floor}
    return {key: (value - floor) / spread for key, value in half.items() if value > floor}


def _score(item: tuple[ToolKey, float]) -> float:
    return item[1]
