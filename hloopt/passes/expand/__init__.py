"""Ops replaced by simpler ones; ``writer`` lets what replaces them read like arithmetic."""
