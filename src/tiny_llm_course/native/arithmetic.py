"""The arithmetic mode of the tuned layers: the modes that commands allow, and the lines that show the choice and the
speeds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..ui import CommandError, Messages, show_note

if TYPE_CHECKING:
    from tiny_llm_native.matmul.arithmetic import Choice, Speeds

__all__ = ["allow_int8", "arithmetic_flags", "choices", "chosen_line"]


def allow_int8() -> None:
    """Let products with packed weights round activations to 8 bits, unless an environment variable names an arithmetic
    mode."""
    from tiny_llm_native.matmul.arithmetic import VARIABLE  # imported here, so that an error in native code ends only
    # commands that need native code

    os.environ.setdefault(VARIABLE, "fast")


def arithmetic_flags(words: Messages) -> tuple[str, ...]:
    """Return the compiler's options for kernels with packed weights. If the speeds of the arithmetic modes have not
    been measured yet, measure them, and tell the user.

    Raises:
        CommandError: the environment variable names an arithmetic mode that does not exist.
    """
    from tiny_llm_native.matmul import arithmetic

    try:
        if len(arithmetic.candidates(os.environ.get(arithmetic.VARIABLE, "exact"))) > 1 and not arithmetic.remembered():
            show_note(words("arithmetic_measuring"))
        return arithmetic.flags()
    except ValueError as error:
        raise CommandError("wrong_variable", reason=error) from None
    except RuntimeError:  # a kernel does not compile; a command that calls the kernel will report the error
        return ()


def chosen_line(words: Messages, is_quantised: bool = True) -> str:
    """Return a line that names the chosen arithmetic mode. Weights that are not quantised are multiplied in float32."""
    from tiny_llm_native.matmul import arithmetic

    choice = _told(arithmetic.chosen(), words) if is_quantised else arithmetic.NAMES[0]
    return words("arithmetic_chosen", choice=choice)


def choices(speeds: Speeds, words: Messages) -> Iterator[str]:
    """Yield lines: the speeds of each arithmetic mode, then the modes chosen without and with --fast."""
    from tiny_llm_native.matmul.arithmetic import choose

    for name in speeds.few:
        rates = {of_rows: f"{getattr(speeds, of_rows)[name] / 1e9:,.0f}" for of_rows in ("some", "many")}
        yield words("arithmetic_speed", name=name, few=f"{speeds.few[name] / 1e9:.1f}", **rates)
    yield from (words("arithmetic_problem", name=name, reason=reason) for name, reason in speeds.problems.items())
    yield words("arithmetic_exact", choice=_told(choose(speeds, "exact"), words))
    yield words("arithmetic_fast", choice=_told(choose(speeds, "fast"), words))


def _told(choice: Choice, words: Messages) -> str:
    """Return the number types and for how many tokens at once each is used."""
    from tiny_llm_native.matmul.arithmetic import FEW, SOME

    if choice.few == choice.some == choice.many:
        return choice.few
    if choice.few == choice.some or choice.some == choice.many:
        most = SOME if choice.few == choice.some else FEW
        return words("arithmetic_two", few=choice.few, most=most, many=choice.many)
    return words("arithmetic_three", few_rows=FEW, some_rows=SOME, **choice._asdict())
