"""Runs Metal kernels on any CPU, and checks them: `metal_kernel` is called as `mx.fast.metal_kernel` is."""

from .errors import MetalCompileError, MetalHostError, MetalKernelError, Party
from .kernel import metal_kernel
from .observe import Counts, Event, Traffic, counting, tracing

__all__ = [
    "Counts",
    "Event",
    "MetalCompileError",
    "MetalHostError",
    "MetalKernelError",
    "Party",
    "Traffic",
    "counting",
    "metal_kernel",
    "tracing",
]
