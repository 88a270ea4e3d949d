"""A static sentence encoder, the mean of a text's token vectors; the only module with numpy.

A query takes 0.05 ms (no network, no inference), so the event loop may encode it. Reads the weights in the
package `wordllama`, without running its code, or a folder in model2vec's format.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from safetensors.numpy import load
from tokenizers import Tokenizer

from daemon.search.vectors import INSTALL, SemanticUnavailable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from daemon.search.vectors import Passage

PACKAGE = "wordllama"
"""Its wheel holds weights of 256 dimensions for 32,000 tokens (16 MiB) and their tokenizer; MIT."""

PACKAGED_WEIGHTS = "weights/l2_supercat_256.safetensors"
PACKAGED_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"

NAMES = ("embedding.weight", "embeddings")
"""The vectors' tensor in wordllama and model2vec."""

TOKENS = 512
"""Tokens of a text: more than nearly all descriptions have, and 0.5 ms at most."""

TINY = 1e-12
"""Shorter vectors mean that no token is known."""


@attrs.frozen
class StaticEncoder:
    """Averages token vectors with numpy."""

    _tokenizer: Tokenizer
    _embeddings: NDArray[Any] = attrs.field(repr=False)
    """One row per token or per group of tokens, in the file's type (16 MiB)."""
    _weights: NDArray[Any] | None = attrs.field(default=None, repr=False)
    _rows: NDArray[Any] | None = attrs.field(default=None, repr=False)
    _unknown: int | None = None
    """The ignored token for unknown words."""

    def encode(self, passages: Sequence[Passage]) -> list[NDArray[np.float32]]:
        """A unit vector per passage; zero if no token is known."""
        return [self._passage(passage) for passage in passages]

    def table(self, vectors: Sequence[NDArray[np.float32]]) -> StaticTable:
        """A searchable table of vectors."""
        return StaticTable(np.stack(vectors))

    def _passage(self, passage: Passage) -> NDArray[np.float32]:
        total = np.zeros(self._embeddings.shape[1], dtype=np.float32)
        for weight, text in passage:
            total += np.float32(weight) * _unit(self._text(text))
        return _unit(total)

    def _text(self, text: str) -> NDArray[np.float32]:
        # One by one: the batch call starts a thread pool, and this process starts children.
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids[:TOKENS]
        tokens = np.asarray([token for token in ids if self._means(token)], dtype=np.int64)
        if not len(tokens):
            return np.zeros(self._embeddings.shape[1], dtype=np.float32)
        vectors = self._embeddings[tokens if self._rows is None else self._rows[tokens]].astype(np.float32)
        if self._weights is not None:
            vectors *= self._weights[tokens, np.newaxis].astype(np.float32)
        mean: NDArray[np.float32] = vectors.mean(axis=0)
        return mean

    def _means(self, token: int) -> bool:
        return token < len(self._embeddings if self._rows is None else self._rows) and token != self._unknown


@attrs.frozen
class StaticTable:
    """A matrix with a unit vector per row."""

    _matrix: NDArray[np.float32] = attrs.field(repr=False)

    def row(self, row: int) -> NDArray[np.float32]:
        """The vector in a row, without a copy."""
        vector: NDArray[np.float32] = self._matrix[row]
        return vector

    def closest(
        self, query: NDArray[np.float32], count: int, rows: Sequence[int] | None
    ) -> list[tuple[int, float]]:
        """The `count` nearest rows (of `rows`, if given) with cosines, best first."""
        cosines = self._matrix @ query
        among = np.arange(len(cosines)) if rows is None else np.asarray(rows, dtype=np.int64)
        near = cosines[among]
        order = np.argsort(-near, kind="stable")[:count]
        return list(zip(among[order].tolist(), near[order].tolist(), strict=True))


def open_model(path: str | None) -> StaticEncoder:
    """Load the encoder from a model2vec folder, or the packaged one. Raises `SemanticUnavailable`."""
    weights, tokenizer = (
        _packaged() if path is None else (f"{path}/model.safetensors", f"{path}/tokenizer.json")
    )
    try:
        return _encoder(weights, tokenizer)
    # The tokenizers library raises plain Exceptions about its file.
    except Exception as error:
        raise SemanticUnavailable(
            f"no usable sentence encoder in {weights} and {tokenizer}: {error}"
        ) from error


def _packaged() -> tuple[str, str]:
    """The paths of the package's weights and tokenizer, found without running its code."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise SemanticUnavailable(f"semantic search needs the weights of the package {PACKAGE}: {INSTALL}")
    folder = spec.submodule_search_locations[0]
    return f"{folder}/{PACKAGED_WEIGHTS}", f"{folder}/{PACKAGED_TOKENIZER}"


def _encoder(weights: str, tokenizer: str) -> StaticEncoder:
    # Read, not mapped: truncating a mapped file would end the daemon with SIGBUS.
    tensors = load(np.fromfile(weights, dtype="u1").tobytes())
    found = next((name for name in NAMES if name in tensors), None)
    if found is None:
        raise ValueError(f"the file holds no tensor {' or '.join(NAMES)}")
    for name, kinds in ((found, "fi"), ("weights", "fi"), ("mapping", "i")):
        if name in tensors and tensors[name].dtype.kind not in kinds:
            raise ValueError(f"numbers of kind {tensors[name].dtype} are not read as {name}")
    reader = Tokenizer.from_file(tokenizer)
    # A tokenizer's file may request its original model's padding and length.
    reader.no_padding()
    reader.no_truncation()
    _do_not_remember(reader)
    if tensors[found].ndim != len(("tokens", "dimensions")):
        raise ValueError(f"{found} is no table")
    unknown = getattr(reader.model, "unk_token", None)
    return StaticEncoder(
        tokenizer=reader,
        embeddings=tensors[found],
        weights=tensors.get("weights"),
        rows=tensors.get("mapping"),
        unknown=None if unknown is None else reader.token_to_id(unknown),
    )


def _do_not_remember(reader: Tokenizer) -> None:
    """Disable the tokenizer's cache of texts, 60 MiB at 9,000 tools: no text comes twice."""
    resize = getattr(reader.model, "_resize_cache", None)
    if resize is not None:
        resize(0)


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    length = float(np.linalg.norm(vector))
    return vector / np.float32(length) if length > TINY else np.zeros_like(vector)
