"""Loops inside kernels: where their state is kept, how an iteration is written, and how the next one begins."""
