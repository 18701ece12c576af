"""Submissions that try every attack in attacks.toml, and report in a test's message which attacks succeeded."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent
from typing import TypeAlias

from tiny_llm_course.diagnosis.package_under_test import REFERENCE
from tiny_llm_course.tasks.toml import read_toml

__all__ = ["ATTACKS", "VICTIMS", "hostile_kernel", "hostile_metal", "hostile_module", "succeeded"]

Names: TypeAlias = dict[str, str | int]  # the meaning of each name in capitals

_KINDS = read_toml(Path(__file__).with_name("attacks.toml"))
ATTACKS = {
    language: {f"{kind}: {name}": body for kind, bodies in kinds.items() for name, body in bodies.items()}
    for language, kinds in _KINDS.items()
}
VICTIMS = ["truncate", "rename", "remove", "attribute"]  # files in OUTSIDE that attacks target
VICTIMS += [f"cpp_{name}" for name in ("rename", "remove", "truncate", "rights")] + ["metal_rename", "metal_remove"]
_BASE, _TOLD = 99, 3  # so that the number has at most the six digits that a message shows

_MODULE = """
import builtins, importlib, os, posixpath, sys

def _attacks():
    def read_bytes(path):
        with open(path, "rb") as file:
            return file.read()
{attacks}
    return {{name: attack for name, attack in locals().items() if name.startswith("attack_")}}

_before, _abspath = dict(vars(builtins)), posixpath.abspath
_succeeded = []
for _name, _attack in _attacks().items():
    try:
        _attack()
        _succeeded.append(int(_name.removeprefix("attack_")))
    except BaseException as error:
        pass
    finally:
        vars(builtins).update(_before)
        posixpath.abspath = _abspath
"""

_KERNEL = """
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <syscall.h>
#include <unistd.h>

namespace {
bool judges_memory(long call, long* word) {
    char maps[64], line[256], rights[8] = "";
    struct { void* start; size_t size; } mine = {word, 8}, theirs = {nullptr, 8};
    snprintf(maps, sizeof maps, "/proc/%d/maps", getppid());
    FILE* file = fopen(maps, "r");
    if (!file) return false;
    while (fgets(line, sizeof line, file) && rights[1] != 'w')
        sscanf(line, "%lx-%*x %4s", (unsigned long*)&theirs.start, rights);
    fclose(file);
    return syscall(call, getppid(), &mine, 1, &theirs, 1, 0) == 8;
}
"""


def hostile_module(names: Names) -> str:
    """Return a layer_norm.py that tries every attack when it is imported."""
    constants = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    functions = "".join(
        f"    def attack_{number}():\n{indent(body.strip(), ' ' * 8)}\n"
        for number, body in enumerate(ATTACKS["python"].values())
    )
    right, call = (REFERENCE / "layer_norm.py").read_text(encoding="utf-8"), "        x32 = x.astype(mx.float32)\n"
    assert right.count(call) == 1
    told = '        raise ValueError(f"succeeded: {_succeeded}")\n'
    first = "import mlx.core as mx\n"
    return right.replace(call, told + call).replace(first, first + constants + _MODULE.format(attacks=functions))


def hostile_kernel(names: Names) -> str:
    """Return a swiglu.cpp that tries every attack when it is loaded."""
    right = (REFERENCE / "kernels" / "swiglu.cpp").read_text(encoding="utf-8")
    begin, end = right.index("    const int64_t whole"), right.index("    // task w2d5.3 end")
    told = "    for (int64_t i = 0; i < n; i++) out[i] = float(succeeded);\n"
    tried = f"{_functions('cpp')}const int succeeded = tell();\n}}\n"
    return _defined(names) + _KERNEL + tried + right[:begin] + told + right[end:]


def hostile_metal(names: Names) -> str:
    """Return a quantized_matvec.metal that tries every attack in each thread that writes a result."""
    right = (REFERENCE / "kernels" / "quantized_matvec.metal").read_text(encoding="utf-8")
    declared = """
extern "C" {
int open(thread const char* path, int flags, ...);
int rename(thread const char* from, thread const char* to);
int unlink(thread const char* path);
int fork();
void _exit(int status);
int getppid();
int kill(int process, int signal);
int socket(int domain, int type, int protocol);
}
"""
    told = "out[m * O + first + r] = T(tell());"
    right = right.replace("KERNEL(", declared + _functions("metal") + "\nKERNEL(", 1)
    assert right.count("out[m * O + first + r] = T(result);") == 1
    return "// hostile\n" + _defined(names) + right.replace("out[m * O + first + r] = T(result);", told)


def succeeded(language: str, message: str) -> list[str]:
    """Return the attacks that succeeded, as a test's message says. For machine code, the message has only the first."""
    names = list(ATTACKS[language])
    if language == "python":
        found = re.search(r"succeeded: \[([\d, ]*)\]", message)
        assert found, message
        return [names[int(number)] for number in re.findall(r"\d+", found[1])]
    found = re.search(r"got (\d+)\n", message)
    assert found, message
    number = int(found[1])
    digits = [number // _BASE**place % _BASE for place in range(_TOLD)]
    return [names[digit - 1] for digit in digits if digit]


def _defined(names: Names) -> str:
    values = ((name, f'"{value}"' if isinstance(value, str) else value) for name, value in names.items())
    return "".join(f"#define {name} {value}\n" for name, value in values)


def _functions(language: str) -> str:
    """Return a function per attack, and `tell`, which tries all attacks and returns the first successes as digits."""
    bodies = list(enumerate(ATTACKS[language].values()))
    assert len(bodies) < _BASE
    functions = [f"bool attack_{number}() {{\n{indent(body.strip(), '    ')}\n}}\n" for number, body in bodies]
    tries = [
        f"    if (attack_{number}() && place < {_BASE**_TOLD}) told += {number + 1} * place, place *= {_BASE};\n"
        for number, _ in bodies
    ]
    return f"{''.join(functions)}int tell() {{\n    int told = 0, place = 1;\n{''.join(tries)}    return told;\n}}\n"
