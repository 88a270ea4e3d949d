"""The clients of a machine, and their servers."""
