"""Passes about while loops."""
