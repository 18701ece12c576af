"""What the course gives: checkpoints, tokenizers, chat templates, and parts of the server that touch no model.

Both course packages import it. No task is in it. Import from the modules.
"""

__all__: list[str] = []
