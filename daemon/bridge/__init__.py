"""How `mcpd connect` outlives the daemon. Standard library only, and little of that.

`loop` moves bytes; `sides` and `sides` decide what they are and what becomes of them, `conversation` is
what is under way: which requests are open, which wait for a daemon (`requests`), what a new one must be told
first (`script`), what a client hears that came before any (`stand_in`); `ends` makes the connections.
"""
