"""The code that runs kernels: the compiler, the MLX extension, headers, and the kernels that no task asks for.

Both course packages import this code, so there is one MLX extension, built once. Import from the modules.
"""

__all__: list[str] = []
