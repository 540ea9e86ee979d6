"""Loops inside kernels: where their state is kept, how a trip is written, and how the next one begins."""
