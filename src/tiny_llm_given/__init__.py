"""Code that the course gives: for checkpoints, tokenizers, chat templates, and the parts of a server without a model.

Both course packages import this code, which contains no tasks. Import from the modules.
"""

__all__: list[str] = []
