"""What can be wrong with a kernel."""

__all__ = ["MetalCompileError", "MetalHostError", "MetalKernelError"]


class MetalHostError(RuntimeError):
    """A kernel cannot be run here: the reason."""


class MetalCompileError(MetalHostError):
    """A kernel's source does not compile: the first errors, with file and line."""


class MetalKernelError(MetalHostError):
    """A kernel did what none may do: what, where in its source, and which thread.

    kind: the same in one word, such as "race" or "bounds".
    """

    def __init__(self, message: str, kind: str):
        super().__init__(message)
        self.kind = kind
