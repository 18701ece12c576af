"""Runs Metal kernels on any CPU, and checks them: `metal_kernel` is called as `mx.fast.metal_kernel` is."""

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
