"""Kernels: operations in C++ and Metal, each with an op in Python.

An op checks its arguments and runs the kernel. Without a built MLX extension, it calls its fallback, which computes the
same with MLX's own operations (`tiny_llm_native/fallback.py`). Import from the modules, as in the package above.
"""

__all__: list[str] = []
