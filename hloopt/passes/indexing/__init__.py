"""Gather and scatter: canonical forms, and slices in their place."""
