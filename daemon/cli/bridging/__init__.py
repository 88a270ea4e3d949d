"""How `mcpd connect` outlives the daemon. Standard library only, and little of that.

`loop` moves bytes; `client_side` and `daemon_side` decide what they are and what becomes of them, `exchange` is
what is under way: which requests are open (`requests`), what a new daemon must be told first (`script`), what
waits for one (`waiting`), what a client hears that came before any (`stand_in`).
"""
