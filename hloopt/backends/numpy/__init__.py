"""The NumPy executor: computations compiled once into straight lines of array functions."""
