"""Compiles files of kernels into libraries, once for each state of a file, and reports errors in a few lines."""

import hashlib
import itertools
import os
import re
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from metal_host.toolchain import NO_COMPILER, compiler_command, for_this_processor, processor, run_in_english, whole

from .includes import with_included

__all__ = [
    "BUILT",
    "KERNEL_FLAGS",
    "CompileError",
    "compile_kernels",
    "get_ready",
    "library_of",
    "macros_of",
    "plain",
]

_HERE = Path(__file__).parent  # the headers' folder
BUILT = "built"  # the name of the folder for libraries, next to a file of kernels
KERNEL_FLAGS = ("-std=c++20", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC")
_OPTIMISED = ("-O3", "-shared")
_LINKED = () if sys.platform == "darwin" else ("-Wl,-z,defs",)  # an undefined name is an error when linking
_HEADERS = {  # names that GCC mistakes for misspelt names of ours, or for which Clang suggests no header
    "algorithm": ("clamp", "copy", "copy_n", "fill", "fill_n", "max", "max_element", "min", "min_element", "sort"),
    "cmath": ("cos", "exp", "exp2", "fabs", "fmax", "fmin", "isnan", "log", "pow", "round", "sin", "sqrt", "tanh"),
    "limits": ("numeric_limits",),
    "numeric": ("accumulate", "iota"),
    "vector": ("vector",),
}
_TYPE = r"'([^']+)'(?: \{aka [^}]*\}| \(aka '[^']*'\))?"  # as compilers quote it
_Place: TypeAlias = tuple[str, int]  # a file and a line
_STALE = 3600  # seconds: by then, every process that was about to load a replaced library has loaded it


class CompileError(RuntimeError):
    """The error raised when a file cannot be compiled. The message lists the first errors, with file and line."""


def compile_kernels(source: Path, flags: Sequence[str] = (), built: Path | None = None) -> Path:
    """Return the library of a file of kernels. Compile the file first if the library does not exist yet.

    flags: further flags for the compiler. built: the library's folder; None means the folder `built` next to the file.

    Raises:
        CompileError: there is no compiler, or the compiler finds an error.
    """
    _check_headers(source)
    library = library_of(source, flags, built)
    built = library.parent
    if not library.exists():
        try:
            _compile(_command(flags), source, library)
        except FileNotFoundError as error:
            raise CompileError(f"{error}: is there a C++ compiler? ./course doctor") from None
        except OSError as error:
            raise CompileError(_said(library) or f"{source.name} could not be compiled into {built}: {error}") from None
        _remove_stale(built.glob(f"{source.stem}-*.*"), library)
    return library


def library_of(source: Path, flags: Sequence[str] = (), built: Path | None = None) -> Path:
    """Return the path of the library of a file of kernels, whether or not the library exists. The library's name
    depends on all files and all options that are used to compile it."""
    return (built or source.parent / BUILT) / f"{source.stem}-{_fingerprint(source, _command(flags))}.so"


def macros_of(header: Path) -> str:
    """Return the macros that a header defines on this machine, as `#define` lines."""
    return run_in_english([*_command(), f"-I{_HERE}", "-dM", "-E", "-x", "c++", str(header)]).stdout


def _command(flags: Sequence[str] = ()) -> list[str]:
    compiler = compiler_command()
    if not compiler:
        raise CompileError(NO_COMPILER)
    return [*compiler, *KERNEL_FLAGS, *_OPTIMISED, for_this_processor(), *_LINKED, *flags]


def _check_headers(source: Path) -> None:
    """Refuse a copy of one of our headers next to a kernel: the kernel would include the copy, but the extension was
    compiled with the original."""
    for file in with_included(source)[1:]:
        if file.parent != _HERE and (_HERE / file.name).exists():
            copy, ours = f"{file.parent.name}/{file.name}", f"{file.name} in src/{_HERE.name}"
            raise CompileError(f"{copy} hides the course's {ours}. Delete it, or rename it and include the new name.")


def _compile(command: list[str], source: Path, library: Path) -> None:
    library.parent.mkdir(parents=True, exist_ok=True)
    with whole(library) as unfinished:
        command = [*command, f"-I{_HERE}", str(source), "-o", str(unfinished)]
        sys.audit("kernel.compiling", source.name)  # a test's time limit pauses
        try:
            run = run_in_english(command)
        finally:
            sys.audit("kernel.compiled", source.name)
        if run.returncode < 0:
            raise CompileError(f"the compiler was ended by {_signal(-run.returncode)}: is there enough memory?")
        if run.returncode:
            problem = _explained(run.stderr, source)
            library.with_suffix(".txt").write_text(problem, encoding="utf-8")
            raise CompileError(problem)


def _signal(number: int) -> str:
    return signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"


def _said(library: Path) -> str:
    """Return the errors of an earlier attempt to compile the library, or "" if none are stored. A graded submission may
    not compile kernels, but may read this text."""
    file = library.with_suffix(".txt")
    return file.read_text(encoding="utf-8") if file.exists() else ""


def get_ready() -> None:
    """Look up all facts about the processor that compiling needs, before the process loses the right to look them
    up."""
    for_this_processor()
    processor()


def _remove_stale(libraries: Iterable[Path], newest: Path) -> None:
    for old in libraries:
        try:
            if old != newest and time.time() - old.stat().st_mtime > _STALE:
                old.unlink()
        except FileNotFoundError:  # another process has deleted the file
            continue


def _fingerprint(source: Path, command: Sequence[str]) -> str:
    folders = [Path(word.removeprefix("-I")) for word in command if word.startswith("-I")]
    files = (file.read_bytes() for file in with_included(source, folders))
    parts = [" ".join(command).encode(), processor().encode(), *files]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _explained(output: str, source: Path, most: int = 3) -> str:
    """Return the first `most` errors, each with its file, line number and line of code. The file is the source, or a
    header next to the source."""
    own = [file for file in with_included(source) if file.parent == source.parent]
    code = {str(file): file.read_text(encoding="utf-8", errors="replace").splitlines() for file in own}
    found: dict[_Place, str] = {}
    for place, message in _errors(output, source, code.keys()):
        found.setdefault(place, message)  # a template's errors are repeated for each of its types
    parts = [
        f"{os.path.relpath(file)}:{line}: {message}\n    {code[file][line - 1].strip()}"
        for (file, line), message in found.items()
        if line
    ]
    name = os.path.relpath(source)
    others = [f"{name}: {message}" for (_, line), message in found.items() if not line]
    more = [f"and {len(parts) - most} more"] if len(parts) > most else []
    return "\n".join([*parts[:most], *more]) or "\n".join(others) or f"{name} does not compile:\n{output[-1000:]}"


def _errors(output: str, source: Path, own: Collection[str]) -> Iterator[tuple[_Place, str]]:
    """Yield the place and the message of each error. For an error in a file of the course, the place is the line in
    `own` files that leads to this error. For an error of the linker, the line is 0."""
    lines = output.splitlines()
    led_from = nowhere = (str(source), 0)
    for number, text in enumerate(lines):
        if "In instantiation of" in text:
            led_from = nowhere
        if undefined := re.search(r"undefined (?:reference to|symbol:?) (.+)", text):
            yield nowhere, f"no definition of {plain(undefined[1])}"
        match = re.match(r"(.+?):(\d+):(?:\d+:)? +(.*)", text)
        if match is None:
            continue
        file, line, said = match[1], int(match[2]), match[3]
        if file in own and said.startswith("required") and led_from == nowhere:
            led_from = file, line
        elif error := re.match(r"(?:fatal )?error: (.*)", said):
            leads = led_from if led_from != nowhere else _noted(lines[number + 1 :], own) or nowhere
            place = (file, line) if file in own else leads
            yield place, _advised(plain(error[1]), lines[number + 1 :])


def _noted(lines: list[str], own: Collection[str]) -> _Place | None:
    """Return the place in `own` files that, according to Clang's notes, leads to an error in a file of the course."""
    for text in lines:
        if " error: " in text:
            return None
        match = re.match(r"(.+?):(\d+):\d+: note: in instantiation of", text)
        if match and match[1] in own:
            return match[1], int(match[2])
    return None


def _advised(message: str, lines: list[str]) -> str:
    """Return an error's message. Add advice if the notes after the error, or the missing name, suggest any."""
    notes = list(itertools.takewhile(lambda text: " error: " not in text, lines))
    missing = re.match(
        r"'(?:std::)?(\w+)' is not a member of 'std'|no (?:member|template|type) named '(\w+)' in .*'std'", message
    )
    for text in notes:
        if named := re.search(r"note: '.+' is defined in header '(<\w+>)'", text):
            return f"{message.partition('; did you')[0]}: add `#include {named[1]}` at the top of the file"
        if differing := re.search(
            rf"deduced conflicting types for parameter '.*?' \({_TYPE} (?:and|vs\.) {_TYPE}\)", text
        ):
            return f"{message}: {_same_type(*map(plain, differing.groups()))}"
    name = (missing[1] or missing[2]) if missing else ""
    header = next((header for header, names in _HEADERS.items() if name in names), None)
    if header:
        return f"{message.partition('; did you')[0]}: add `#include <{header}>` at the top of the file"
    return message


def _same_type(one: str, other: str) -> str:
    """Return advice for arguments that must have the same type, such as the two arguments of std::max."""
    one, other = ("int64_t" if re.fullmatch(r"(long ?)+(int)?", type_) else type_ for type_ in (one, other))
    wide = next((type_ for type_ in ("double", "float", "int64_t", other) if type_ in (one, other)), other)
    wide = "float" if wide in ("bfloat16", "float16") else wide
    return f"the arguments are {one} and {other}, and must have the same type; convert one, as in {wide}(x)"


def plain(message: str) -> str:
    """Return a compiler's message without the parts that templates and namespaces add."""
    message = re.sub(r" ?\[with [^\]]*\]| ?\{aka [^}]*\}", "", message)
    return re.sub(r"\(anonymous namespace\)::|\{anonymous\}::|tiny_llm::|<unnamed>::", "", message)
