"""What runs kernels: the compiler, the bridge to MLX, headers, and the kernels that no task asks for.

Both course packages import it, so there is one bridge, built once. Import from the modules.
"""

__all__: list[str] = []
