"""The states of a server: the whole table, cell by cell."""

from itertools import product

from daemon.states import SERVING, TRANSITIONS, WAITING, WAKEABLE, WORST_FIRST, ServerState

# Rows are where a server is, columns (the same words in the same order) where it wants to go.
TABLE = """
              qu st re de ba cr ne fa do di sg sd
 queued        .  x  .  .  .  .  .  .  .  .  x  .
 starting      .  .  x  x  x  x  x  x  .  .  x  .
 ready         x  x  .  x  x  x  x  x  x  .  x  .
 degraded      x  x  x  .  x  x  x  x  x  .  x  .
 backoff       x  x  .  .  x  x  x  x  .  .  x  .
 crashloop     x  x  .  .  .  .  .  .  .  .  x  .
 needs_auth    x  x  .  .  .  .  .  .  .  .  x  .
 failed        x  x  .  .  .  .  .  .  .  .  x  .
 dormant       x  x  .  .  .  .  .  .  .  x  x  .
 disabled      x  x  .  .  .  .  .  .  x  .  x  .
 stopping      .  .  .  .  .  .  .  .  .  .  .  x
 stopped       x  x  .  .  .  .  .  .  x  x  .  .
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()[1:]]
WORDS = [row[0] for row in ROWS]
CELLS = {(row[0], to): cell == "x" for row in ROWS for to, cell in zip(WORDS, row[1:], strict=True)}


def test_the_words_are_the_ones_that_operators_are_promised() -> None:
    assert [str(state) for state in ServerState] == WORDS


def test_a_server_goes_where_the_table_says_and_nowhere_else() -> None:
    for current, to in product(ServerState, ServerState):
        assert (to in TRANSITIONS[current]) is CELLS[current, to]


def reachable(start: ServerState) -> set[ServerState]:
    found, waiting = {start}, [start]
    while waiting:
        new = TRANSITIONS[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def test_no_state_is_a_dead_end() -> None:
    assert all(reachable(state) == set(ServerState) for state in ServerState)


def test_calls_wake_what_is_expected_back_but_not_what_is_parked() -> None:
    assert not WAITING & SERVING
    assert {ServerState.NEEDS_AUTH, ServerState.FAILED} == WAITING - WAKEABLE
    assert not WAKEABLE & SERVING


def test_every_state_has_its_place_in_a_list_of_servers() -> None:
    assert sorted(WORST_FIRST) == sorted(ServerState)
