"""Products with 4-bit weights in panels, and blocks of a model made of them: given, and the fastest."""

__all__: list[str] = []
