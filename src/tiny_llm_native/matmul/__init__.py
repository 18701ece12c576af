"""The course's fastest kernels: products with 4-bit weights in panels, and model blocks built from such products.
Given."""

__all__: list[str] = []
