"""A whole program as a library of C: header, tables, weights, and a module of Python that calls it."""
