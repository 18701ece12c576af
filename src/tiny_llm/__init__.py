"""tiny-llm: LLM inference from the matrix product up, on MLX.

Import from the modules (`from tiny_llm.attention import causal_mask`). This file imports none of them, so that a
mistake in one of them never breaks another.
"""

__all__: list[str] = []
