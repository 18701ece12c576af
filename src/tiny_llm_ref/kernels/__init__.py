"""Kernels: operations in C++ and Metal, each with a door in Python.

A door checks its arguments and runs the kernel; where nothing was built, it computes the same with MLX's own
operations (ops.py). Import from the modules, as in the package above.
"""

__all__: list[str] = []
