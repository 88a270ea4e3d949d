"""Failure injection: real children that misbehave, under the real supervisor, in one process."""
