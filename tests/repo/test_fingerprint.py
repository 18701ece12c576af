"""The digest of a day depends on everything that can change a verdict, and not on prose."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import verdicts
from fingerprint import digest, digest_of_files, is_input, python_code
from imports import with_imports

from tiny_llm_course.tasks.syllabus import day_of, select_days, tasks

ROOT = Path(__file__).resolve().parents[2]
IGNORED = shutil.ignore_patterns("__pycache__", "built", "*.safetensors", "repo")
ATTENTION, KERNEL = select_days("1", "1")[0], select_days("2", "4")[0]
CATALOGUE = "src/tiny_llm_course/catalogue/week_1_day_1.toml"
KERNELS, NATIVE = "src/tiny_llm_ref/kernels", "src/tiny_llm_native"

CODE = {  # a day, a file that it depends on, a text in it, and another text
    "a test's numbers": (ATTENTION, "tests/test_week_1_day_1.py", r"seed=\d+|Inputs\(\d+", "Inputs(999"),
    "a tolerance": (ATTENTION, "tests/helpers.py", "mx.float32: 2e-5", "mx.float32: 2e-4"),
    "a helper": (ATTENTION, "tests/oracles.py", r"q.shape\[-1\] \*\* -0.5", "q.shape[-1] ** -1"),
    "what bars answers": (ATTENTION, "tests/barred.py", '_package = ""', '_package = "none"'),
    "a fixture": (ATTENTION, "tests/conftest.py", '"watched"', '"off"'),
    "the reference": (ATTENTION, "src/tiny_llm_ref/attention.py", r"1 / math.sqrt", "2 / math.sqrt"),
    "the reference below": (ATTENTION, "src/tiny_llm_ref/basics.py", r"axis=axis", "axis=-1"),
    "a task's tag": (ATTENTION, "src/tiny_llm_ref/attention.py", "Task: w1d1.1", "Task: w1d1.2"),
    "a mistake's edit": (ATTENTION, CATALOGUE, r'edits = \[\["', 'edits = [[" '),
    "a mistake's id": (ATTENTION, CATALOGUE, 'id = "no-scale"', 'id = "without-scale"'),
    "a variant": (ATTENTION, "tests/repo/variants/week_1_day_1.toml", "'...ld,...sd->...ls'", "'...ls,...sd->...ld'"),
    "replaying": (ATTENTION, "src/tiny_llm_course/diagnosis/package_under_test.py", r"set\(True\)", "set(False)"),
    "naming": (ATTENTION, "src/tiny_llm_course/diagnosis/naming.py", "MAX_SECONDS = 5.0", "MAX_SECONDS = 6.0"),
    "comparing": (ATTENTION, "src/tiny_llm_course/diagnosis/observation.py", "1e-6", "1e-3"),
    "making mistakes": (ATTENTION, "src/tiny_llm_course/diagnosis/mutants.py", r"if count != 1", "if count < 1"),
    "the matrix": (ATTENTION, "tests/repo/catalogue_matrix.py", "if run.failed else run", "if False else run"),
    "the syllabus's bars": (ATTENTION, "src/tiny_llm_course/syllabus.toml", r'modules = \["basics', 'modules = ["x'),
    "a version": (ATTENTION, "pdm.lock", r'(name = "numpy"\nversion = ")[\d.]+', r"\g<1>1.0"),
    "pytest's options": (ATTENTION, "pyproject.toml", '"--strict-markers"', '"-x"'),
    "a kernel": (KERNEL, f"{KERNELS}/quantized_matvec.cpp", r"return", "return 1 +"),
    "a header": (KERNEL, f"{NATIVE}/kernel.h", "product = 1", "product = 2"),
    "a header of a header": (KERNEL, f"{NATIVE}/vector.h", r"alignas|inline", "static inline"),
    "the MLX extension": (KERNEL, f"{NATIVE}/mlx_extension.cpp", r"return", "return 1 +"),
    "the pool of threads": (KERNEL, f"{NATIVE}/pool.h", r"return", "return 1 +"),
    "the redzones around arrays": (KERNEL, f"{NATIVE}/checks/redzone.h", r"return", "return 1 +"),
    "a task's marker": (KERNEL, f"{KERNELS}/quantized_matvec.metal", "// task w2d4.4 begin", ""),
    "Metal": (KERNEL, f"{KERNELS}/quantized_matvec.metal", "chunk = lane", "chunk = 0"),
    "Metal's language": (KERNEL, "src/metal_host/include/msl/math.h", r"return", "return 1 +"),
    "Metal's threads": (KERNEL, "src/metal_host/runtime/scheduler.cpp", r"return", "return 1 +"),
    "what compiles": (KERNEL, f"{NATIVE}/compiler.py", '"-O3"', '"-O2"'),
}
PROSE = {
    "a comment": ("src/tiny_llm_ref/attention.py", "# N.., L, S", "# a shape"),
    "a comment's line": (
        "src/tiny_llm_ref/attention.py",
        "    if scale is None:\n",
        "    # why\n    if scale is None:\n",
    ),
    "a module's docstring": ("src/tiny_llm_ref/attention.py", "from the basic formula", "out of one formula"),
    "a function's docstring": ("src/tiny_llm_ref/attention.py", "Compute scaled dot-product attention: soft", "Soft"),
    "shapes": ("src/tiny_llm_ref/attention.py", "N.. is zero or more batch", "N.. stands for zero or more batch"),
    "a method's docstring": ("src/tiny_llm_ref/basics.py", r'"""(\w+)', r'"""So: \1'),
    "a test's docstring": ("tests/test_week_1_day_1.py", r'    """(\w+)', r'    """So: \1'),
    "a helper's docstring": ("tests/helpers.py", "seeded inputs", "inputs with a seed"),
    "an oracle's comment": ("tests/oracles.py", "N x L x ", "B x L x "),
    "the replay's docstring": (
        "src/tiny_llm_course/diagnosis/package_under_test.py",
        "Run a test with",
        "This runs a test with",
    ),
    "a hint": (CATALOGUE, r"\[\[tasks.hints\]\]\nen = \"", r"\g<0>Well: "),
    "a Japanese hint": (CATALOGUE, r"\[\[tasks.hints\]\]\n(en = .*\n)ja = \"", r"\g<0>さて、"),
    "what was learned": (CATALOGUE, r"\[tasks.learned\]\nen = \"", r"\g<0>Well: "),
    "a diagnosis": (CATALOGUE, r"This is what you get", "You get this"),
    "a comment in TOML": (CATALOGUE, r"\A", "# Week 1, the first day\n"),
    "a title": ("src/tiny_llm_course/syllabus.toml", 'title = { en = "', 'title = { en = "So: '),
    "a chapter's name": ("src/tiny_llm_course/syllabus.toml", 'chapter = { en = "', 'chapter = { en = "So: '),
    "a message": ("src/tiny_llm_course/ui/messages.toml", r'en = "', 'en = "So: '),
    "how results are shown": (
        "src/tiny_llm_course/testing/pytest_plugin.py",
        "MAX_MESSAGE = 10_000",
        "MAX_MESSAGE = 9_000",
    ),
    "a comment in C++": (f"{NATIVE}/kernel.h", "// of the first element", "// where the first element is"),
    "C++'s first line": (f"{KERNELS}/quantized_matvec.cpp", r"\A//", "// So:"),
    "a comment in Metal": (f"{KERNELS}/quantized_matvec.metal", "// per row", "/* of a row */"),
    "another indent": (f"{NATIVE}/pool.h", r"\n    ", "\n        "),
    "a maintainer's package": ("pdm.lock", r'(name = "sphinx"\nversion = ")[\d.]+', r"\g<1>1.0"),
    "the project's description": ("pyproject.toml", 'description = "', 'description = "So: '),
}
IMPORTED = {  # a file that checks import, an edit, and these checks
    "by a check": ("tests/repo/bundled_answers.py", "SAMPLE = 40", "SAMPLE = 41", ["models"]),
    "a test's": ("tests/train/test_induction.py", "import", "import os\nimport", ["train"]),
    "by a module": ("src/tiny_llm_ref/quantize.py", "return", "return 1 +", ["models", "train"]),
    "by a module of a module": ("src/tiny_llm_given/checkpoint_files.py", "return", "return 1 +", ["models", "train"]),
    "with a package": ("src/tiny_llm_ref/__init__.py", r"\Z", "\nx = 1\n", ["models", "train"]),
    "in a function": ("src/tiny_llm_given/chat_template.py", "return", "return 1 +", ["models", "train"]),
    "by the trainer": ("src/tiny_llm_models/training/muon.py", "return", "return 1 +", ["train"]),
    "by a program": ("src/tiny_llm_models/training/__main__.py", "import", "import os\nimport", ["train"]),
    "words": ("src/tiny_llm_models/storyteller/english/words.toml", r"\Z", "\n", ["models", "train"]),
    "generate": ("src/tiny_llm_ref/generate.py", "return", "return 1 +", []),
    "a server": ("src/tiny_llm_ref/serving/engine.py", "return", "return 1 +", []),
    "a given part of the server": ("src/tiny_llm_given/serving/__init__.py", r"\Z", "\nx = 1\n", []),
    "a kernel's entry point": (f"{KERNELS}/quantized_matvec.py", "return", "return 1 +", []),
    "native code": (f"{NATIVE}/kernel.h", "product = 1", "product = 2", []),
    "a module's prose": ("src/tiny_llm_ref/quantize.py", r'"""(\w+)', r'"""So: \1', []),
}


device = pytest.fixture(lambda: None)  # nothing here computes on one


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Return a copy of the repository's inputs."""
    root = tmp_path_factory.mktemp("copy")
    packages = [f"src/tiny_llm_{name}" for name in ("ref", "given", "native", "models", "course")]
    for name in (*packages, "src/metal_host", "tests"):
        shutil.copytree(ROOT / name, root / name, ignore=IGNORED)
    shutil.copytree(ROOT / "tests/repo", root / "tests/repo", ignore=IGNORED, dirs_exist_ok=True)
    for name in ("pdm.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, root)
    return root


def digests(root, *days):
    return [digest(root, day, verdicts.known(day)["inputs"]) for day in days]


def digests_of_checks(root, *names):
    return [digest_of_files(root, verdicts.CHECKS[name]) for name in names]


def changed(root, path, pattern, text, what, digests=digests):
    """Tell, for each of these days or checks, whether an edit changes its digest. The edit is undone."""
    before = digests(root, *what)
    source = (root / path).read_text(encoding="utf-8")
    edited, count = re.subn(pattern, text, source, count=1)
    assert count == 1
    assert edited != source
    try:
        (root / path).write_text(edited, encoding="utf-8")
        return [one != other for one, other in zip(before, digests(root, *what), strict=True)]
    finally:
        (root / path).write_text(source, encoding="utf-8")


def test_a_copy_has_the_same_digest(copy):
    assert digests(copy, ATTENTION, KERNEL) == digests(ROOT, ATTENTION, KERNEL)


@pytest.mark.parametrize("name", CODE)
def test_what_can_change_a_verdict_makes_the_day_unknown(copy, name):
    day, *edit = CODE[name]
    assert changed(copy, *edit, [day]) == [True]


@pytest.mark.parametrize("name", PROSE)
def test_prose_does_not(copy, name):
    assert changed(copy, *PROSE[name], [ATTENTION, KERNEL]) == [False, False]


def test_a_day_does_not_depend_on_another_one(copy):
    edits = [
        (f"{KERNELS}/quantized_matvec.cpp", "return", "return 1 +"),
        ("tests/test_week_2_day_4.py", "import", "import os\nimport"),
        ("src/tiny_llm_course/catalogue/week_2_day_4.toml", 'id = "not-masked"', 'id = "unmasked"'),
    ]
    for edit in edits:
        assert changed(copy, *edit, [ATTENTION, KERNEL]) == [False, True]


def test_a_file_that_is_gone_counts(copy):
    before = digests(copy, ATTENTION)
    (copy / "tests/oracles.py").rename(copy / "tests/elsewhere.py")
    try:
        assert digests(copy, ATTENTION) != before
    finally:
        (copy / "tests/elsewhere.py").rename(copy / "tests/oracles.py")


def test_other_files_count_by_their_bytes(tmp_path):
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "pdm.lock", tmp_path)
    file = tmp_path / "tests/x.json"
    file.write_text("1")
    before = digest_of_files(tmp_path, ["tests/*"])
    file.write_text("1 ")
    assert digest_of_files(tmp_path, ["tests/*"]) != before


@pytest.mark.parametrize("name", IMPORTED)
def test_a_check_depends_on_what_it_imports_and_on_nothing_else(copy, name):
    *edit, dependent = IMPORTED[name]
    checks = [*verdicts.CHECKS]
    seen = changed(copy, *edit, checks, digests_of_checks)
    assert [check for check, is_seen in zip(checks, seen, strict=True) if is_seen] == dependent


def test_no_import_is_overlooked():
    """Reading the code finds at least the modules that Python loads."""
    file = ROOT / "tests/repo/bundled_answers.py"
    code = "import bundled_answers, sys; print(*(getattr(m, '__file__', '') for m in sys.modules.values()), sep='\\n')"
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{file.parent}"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    ours = (os.path.relpath(path, ROOT) for path in run.stdout.split("\n") if path.startswith("/"))
    loaded = {path for path in ours if not path.startswith("..") and is_input(path)}
    assert "src/tiny_llm_ref/qwen3.py" in loaded
    assert loaded - {str(found.relative_to(ROOT)) for found in with_imports(ROOT, [file])} == set()


def test_every_version_of_python_gives_the_same_digest():
    """CI runs several versions. Version 3.12.0 parses f-strings in its own way, and 3.13 leaves out empty fields."""
    source = 'def f(x):\n    "Doc."\n    return "a" f"{x:>{x}}b" "c"  # a comment\n'
    assert python_code(source) == (
        "Module(body=[FunctionDef(name=str 'f',args=arguments(args=[arg(arg=str 'x')]),body=[Expr(value=Constant("
        "value=str '')),Return(value=JoinedStr(values=[Constant(value=str 'a'),FormattedValue(value=Name(id=str 'x'),"
        "conversion=int -1,format_spec=JoinedStr(values=[Constant(value=str '>'),FormattedValue(value=Name(id=str 'x'),"
        "conversion=int -1)])),Constant(value=str 'bc')]))])])"
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_sample_is_a_twentieth(seed):
    sizes = {task.id: sum(map(len, verdicts.ids_of(day_of(task.id), task.id))) for task in tasks()}
    drawn, everything = verdicts.draw(seed), sum(sizes.values())
    assert drawn == verdicts.draw(seed) != verdicts.draw(seed + 100)
    assert 0 <= sum(sizes[task] for task in drawn) - 0.05 * everything < max(sizes.values())
