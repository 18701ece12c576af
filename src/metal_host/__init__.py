"""Runs Metal kernels on any CPU, and checks them: `metal_kernel` is called as `mx.fast.metal_kernel` is."""

from .errors import MetalCompileError, MetalHostError, MetalKernelError
from .kernel import metal_kernel

__all__ = ["MetalCompileError", "MetalHostError", "MetalKernelError", "metal_kernel"]
