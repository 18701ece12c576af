"""Metal kernels on any CPU, with checks: call `metal_kernel` as you would call `mx.fast.metal_kernel`.

Each name here is imported when it is first used, so code that needs only `metal_host.toolchain` does not load MLX.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .calls import KernelCall, watching
    from .errors import MetalCompileError, MetalHostError, MetalKernelError, Party
    from .kernel import metal_kernel
    from .observe import Counts, Event, Trace, Traffic, counting, threadgroups_of, tracing

__all__ = [
    "Counts",
    "Event",
    "KernelCall",
    "MetalCompileError",
    "MetalHostError",
    "MetalKernelError",
    "Party",
    "Trace",
    "Traffic",
    "counting",
    "metal_kernel",
    "threadgroups_of",
    "tracing",
    "watching",
]

_MODULES = ("errors", "calls", "kernel", "observe")


def __getattr__(name: str) -> object:
    found = (import_module(f"{__name__}.{module}") for module in _MODULES) if name in __all__ else ()
    for module in found:
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
