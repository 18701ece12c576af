"""The code that runs kernels: the compiler, the MLX extension, headers, and kernels that belong to no task.

Both course packages import this code, so they share one MLX extension, built once. Import from the modules.
"""

__all__: list[str] = []
