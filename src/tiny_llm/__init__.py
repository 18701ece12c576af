"""tiny-llm: LLM inference from the matrix product up, on MLX.

Import from the modules (`from tiny_llm.attention import causal_mask`). This file imports no module, so that a mistake
in one module never breaks another.
"""

__all__: list[str] = []
