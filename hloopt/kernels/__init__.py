"""The choice of kernels: candidates for each instruction, selectors, launches, buffers."""
