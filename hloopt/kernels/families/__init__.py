"""Families of kernels, a file each: what fits, what is wanted, tiles and launches."""
