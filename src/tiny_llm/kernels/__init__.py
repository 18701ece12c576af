"""Kernels, written in C++ and Metal, and their ops, which are Python functions.

An op checks its arguments and runs the kernel. If no MLX extension is built, the op calls its fallback, which uses
MLX's own operations instead (`tiny_llm_native/fallback.py`). Import from the modules, not from this package.
"""

__all__: list[str] = []
