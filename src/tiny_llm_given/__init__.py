"""Code that the course gives: for checkpoints, tokenizers, chat templates, and the model-independent parts of a server.

Both tiny_llm and tiny_llm_ref import this code, which contains no tasks. Import from the modules, not from the package.
"""

__all__: list[str] = []
