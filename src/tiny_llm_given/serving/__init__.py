"""Parts of the server that handle HTTP, messages and limits, without an engine. Import the modules, not the package."""

__all__: list[str] = []
