"""A checkpoint's chat template, filled in by a process of its own. Given.

A chat template is a program that comes with a checkpoint, and may run forever or use all memory. So the process has
limits: at a limit, the process ends, and the server goes on.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["ChatTemplate", "RefusedError"]

_SECONDS = 5.0
_MEMORY, _LETTERS = 1 << 29, 1 << 22  # bytes of the process, characters of one conversation


class RefusedError(ValueError):
    """The error raised when a template refuses a conversation; the template itself is not damaged."""


class ChatTemplate:
    """A tokenizer whose `apply_chat_template` runs in another process, with limits. All other attributes are those of
    the tokenizer itself.

    Only one thread may use this object at a time. The first conversation starts the process. If a conversation ends the
    process, the next conversation starts it again. seconds: the processor time that a conversation may take.
    """

    def __init__(self, tokenizer: Any, seconds: float = _SECONDS):
        self._tokenizer, self._seconds = tokenizer, seconds
        self._process: subprocess.Popen[str] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool, tokenize: bool, **settings: bool
    ) -> str:
        """Return the text of a conversation.

        Raises:
            RefusedError: the template refuses these messages.
            ValueError: the template fails, or takes too much time or memory.
        """
        assert not tokenize
        if self._tokenizer.chat_template is None:  # then mlx-lm has a function in place of a template
            return str(
                self._tokenizer.apply_chat_template(
                    messages, add_generation_prompt=add_generation_prompt, tokenize=False, **settings
                )
            )
        given = {"messages": list(messages), "add_generation_prompt": add_generation_prompt, **settings}
        nothing = {"tools": None, "documents": None}
        answer = self._ask({**self._tokenizer.special_tokens_map, **nothing, **given})
        if "refusal" in answer:
            raise RefusedError(f"messages: the checkpoint's chat template refuses them: {answer['refusal']}")
        if "error" in answer:
            raise ValueError(f"messages: the checkpoint's chat template {answer['error']}")
        return answer["text"]

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def _ask(self, given: Mapping[str, Any]) -> dict[str, str]:
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(given) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            return dict(json.loads(line))
        self._process = None
        if process.wait() == -signal.SIGPROF:
            return {"error": f"takes longer than {self._seconds:g} s"}
        return {"error": f"crashed while it was filled in (exit status {process.returncode})"}

    def _start(self) -> "subprocess.Popen[str]":
        limits = [str(each) for each in (self._seconds, _MEMORY, _LETTERS)]
        process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.fill_in", *limits],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "utf-8"},
            start_new_session=True,  # Ctrl-C is for the server; this process ends when its pipe closes
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(self._tokenizer.get_chat_template()) + "\n")
        return process
