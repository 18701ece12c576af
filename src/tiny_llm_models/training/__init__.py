"""The pipeline that makes the bundled models: tokenizer, training text, training, evaluation, model card."""

__all__: list[str] = []
