"""Surfaces, pure: they decide on the tools that a client lists and on its calls; the call path acts."""
