"""The code that runs kernels: the compiler, the MLX extension, headers, and kernels that belong to no task.

Both course packages import this code, so they share one MLX extension, which is built once. Import from the
package's modules: the package itself exports no names.
"""

__all__: list[str] = []
