"""Parts of the server that handle HTTP, messages and limits, without an engine. Import from the modules."""

__all__: list[str] = []
