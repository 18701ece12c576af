"""The settings that `main` and `chat` use where the command line leaves them out."""

__all__ = ["COURSE_SAMPLING", "MAX_TOKENS", "MAX_TOKENS_THINKING"]

COURSE_SAMPLING = {"temperature": 0.7, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
MAX_TOKENS, MAX_TOKENS_THINKING = 400, 4096  # where --max-tokens is left out
