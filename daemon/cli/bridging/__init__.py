"""How `mcpd connect` outlives the daemon. Standard library only, and little of that.

`loop` moves bytes, `conversation` decides what they are: which requests are open (`ledger`), what a new daemon
must be told first (`script`), what waits for one (`waiting`), what a client hears that came before any
(`stand_in`).
"""
