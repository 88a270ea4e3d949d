"""Families of meta-tools, one file each: what a client is shown, and what a call to it means.

Surfaces are pure: they read the catalog and say what is to be done. Sessions do it.
"""
