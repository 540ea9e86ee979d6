"""Independent kernels beside each other become one: what may stand there, in which groups, and the joining.

Two kernels that one instruction reads, and nothing else, do not need each other.
"""
