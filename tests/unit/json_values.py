"""Any JSON, for tests of properties."""

from typing import Any

from hypothesis import strategies as st

ATOMS = st.none() | st.booleans() | st.integers() | st.floats(-1e308, 1e308) | st.text(max_size=10)


def json_values(
    *atoms: st.SearchStrategy[Any], keys: st.SearchStrategy[str] | None = None, leaves: int = 8
) -> st.SearchStrategy[Any]:
    """Values of JSON; `atoms` are further ones that hold no others, `keys` the names of members."""
    names = st.text(max_size=5) if keys is None else keys
    return st.recursive(
        st.one_of(ATOMS, *atoms),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
        max_leaves=leaves,
    )
