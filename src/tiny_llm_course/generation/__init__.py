"""Text generation with one model: `tiny-llm main` and `tiny-llm chat`."""
