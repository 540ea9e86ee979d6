"""Reducing: the smallest module that still shows a failure, with its inputs.

A ``Case`` is a module with its inputs.  ``deltas`` make smaller cases of one, on the graph and never on its
text, each of them valid.  A ``Question`` runs a case and says what came of it; a smaller case is kept where
that is what came of the first one.  ``search`` decides which deltas are tried, and in which order.

The kinds of deltas are those of LLVM's ``llvm-reduce`` (drop instructions, operands to arguments, operands
skip) and what HLO adds: calls, loops, tuples, dimensions, element types and the values of inputs.
"""
