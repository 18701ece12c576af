"""The course's fastest kernels: products with 4-bit weights in panels, and blocks of a model that use these. Given."""

__all__: list[str] = []
