"""Kernels in C++: the MLX extension, the compiler, and checked builds."""
