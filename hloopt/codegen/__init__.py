"""CUDA C from kernel specs: tables and rendering, no decisions."""
