# Completion of mcpd for fish, read at its first use.
mcpd completions fish | source
