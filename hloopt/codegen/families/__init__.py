"""The CUDA C of each family of kernels, a file each."""
