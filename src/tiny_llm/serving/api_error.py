"""What a client is told that cannot be served."""

from collections.abc import Mapping

__all__ = ["ApiError"]


class ApiError(Exception):
    """What a client is told, in the API's form: `{"error": {"message", "type", "param", "code"}}`."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str = "invalid_request_error",
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
