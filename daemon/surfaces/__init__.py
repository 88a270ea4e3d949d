"""Surfaces, one module each: the tools that a client is shown, and what a call to one of them means.

Surfaces are pure: they read the catalog and decide what is to be done; the call path does it.
"""
