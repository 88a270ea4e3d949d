"""When nothing fits: what the best tool scores shows whether it was found by chance.

A tool's weights depend on nothing but the tool, and how rare a word is is known from public tools as well, so
scores mean the same in small catalogs and large ones.
"""

from __future__ import annotations

LEAST_SCORE = 6.0
"""What is found by chance scores less. This and `LEAST_SHARE` refuse 2 of 1,150 public queries whose tool is
among the first five, and 5 of 275 that are asked of the one server that serves them; of 32 needs that none of
29 recorded servers serves 15, of those joined in threes 2. At 7 it would be 7, 6, 19 and 6."""

LEAST_SHARE = 0.30
"""And less than this for each unit of rarity that was asked for: a single word that a tool's description has
scores little, and all that it can. One word of many, in a description of something else, scores less. At 0.35
seven of the 275 are refused, and no more of the 32."""


def is_chance(best: float, asked: float) -> bool:
    """Whether even the best tool shares no more with a query than anything would.

    Args:
        best: its score.
        asked: how rare the words of the query are, added up.
    """
    return best < LEAST_SCORE and best < LEAST_SHARE * asked
