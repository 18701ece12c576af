"""Parts of the server that know HTTP, messages and limits, but no engine. Import from the modules."""

__all__: list[str] = []
