"""How `mcpd connect` outlives the daemon. Standard library only, and little of that.

`loop` moves bytes; `client_side` and `daemon_side` decide what they are and what becomes of them, `exchange` is
what is under way: which requests are open, which wait for a daemon (`requests`), what a new one must be told
first (`script`), what a client hears that came before any (`stand_in`); `reaching` makes the connections.
"""
