"""The pipeline that makes the bundled checkpoints: corpus, tokenizer, training, evaluation, model card."""

__all__: list[str] = []
