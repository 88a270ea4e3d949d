"""From the text of mcpd.json to a `Config` that the rest of the daemon trusts without looking again."""
