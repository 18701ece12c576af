"""Kernels in C++: the MLX extension, compilers, and what the machine needs for them."""
