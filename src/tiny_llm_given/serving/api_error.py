"""The error that a client gets instead of an answer."""

from collections.abc import Mapping

__all__ = ["ApiError"]

_MESSAGE, _PARAM = 500, 100  # characters at most


class ApiError(Exception):
    """An error that a client gets, in the API's form: `{"error": {"message", "type", "param", "code"}}`.

    A message may quote any text that a client sent, so a long message is shortened in the middle.
    """

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
        message, param = _shortened(message, _MESSAGE), param and _shortened(param, _PARAM)
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _shortened(text: str, most: int) -> str:
    half = most // 2
    return text if len(text) <= most else f"{text[:half]} … {text[-half:]}"
