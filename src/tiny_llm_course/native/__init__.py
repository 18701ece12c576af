"""Kernels in C++: the bridge to MLX, compilers, and what the machine needs for them."""
