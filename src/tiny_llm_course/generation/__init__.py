"""Text from one model: `tiny-llm main` and `tiny-llm chat`."""
