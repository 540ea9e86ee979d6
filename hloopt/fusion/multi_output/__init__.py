"""Kernels with several results: what may share one, and a computation while it is gone through."""
