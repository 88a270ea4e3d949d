"""How `mcpd connect` outlives the daemon. Standard library only, and little of that, for a quick start.

`loop` moves the bytes; `ends` makes the connections and writes to stdout without waiting. `sides` decides what
each line is and where it goes; `conversation` is the state: which requests are open and which wait for a daemon
(`requests`), what a new daemon must be told first, and `stand_in` what a client hears when no daemon answers.
"""
