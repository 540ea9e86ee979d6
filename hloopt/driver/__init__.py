"""The driver: from options to passes, kernels and results, for the command line and for Python alike.

``options`` has the records that say what is to be done, ``passes`` and ``selecting`` choose the pipeline and
the kernels, ``run`` compiles, executes, compares and times a module in all its forms.
"""
