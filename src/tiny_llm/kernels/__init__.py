"""Kernels: operations in C++ and Metal, each with an op in Python.

An op checks its arguments and runs the kernel. If no MLX extension is built, the op calls its fallback, which uses
MLX's own operations instead (`tiny_llm_native/fallback.py`). Import from the modules, not from this package.
"""

__all__: list[str] = []
