"""Surfaces: the tools that a client lists, and the meaning of a call to one of them.

Surfaces are pure: they read the catalog and decide; the call path acts.
"""
