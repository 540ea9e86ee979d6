"""One kernel of a module as a file that stands by itself: CUDA C, CuPy, JAX or PyTorch.

``kernel.py`` takes the kernel out of the module: its functions, and what enqueues them; ``check.py`` gives
it inputs, and what of its results may be seen on them; a file a form writes both into the template of its
name.
"""
