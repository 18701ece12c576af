"""`tiny-llm install`, and the commands that work without a clone. .ci/run installs for real; these tests need no
network."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tiny_llm_course import commands
from tiny_llm_course.base import extras
from tiny_llm_course.base.extras import GROUPS, WHAT, missing
from tiny_llm_course.commands import app
from tiny_llm_course.setup import install
from tiny_llm_course.setup.install import DEFAULT, command_for, options_of_pdm
from tiny_llm_course.tasks.toml import read_toml
from tiny_llm_course.ui.command_table import ALL, ANYWHERE

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = read_toml(ROOT / "pyproject.toml")
INSTALLS = "import sys; from pathlib import Path; Path(sys.argv[1]).mkdir()"  # what is enough for importlib.metadata


def call(*arguments):
    return CliRunner().invoke(app, list(arguments), prog_name="./course")


def test_every_extra_and_group_can_be_installed():
    assert set(WHAT["all"]) == {*SETTINGS["project"]["optional-dependencies"], *SETTINGS["dependency-groups"]}
    assert set(GROUPS) == set(SETTINGS["dependency-groups"])
    assert set(DEFAULT) <= set(WHAT["all"])


def test_the_list():
    lines = call("install").stdout.splitlines()
    assert [line.split()[0] for line in lines[::2]] == list(WHAT)
    assert {line.strip() for line in lines[1::2]} == {"installed"}


def test_an_unknown_name():
    run = call("install", "server")
    assert run.exit_code == 2
    assert run.stderr == "error: install: expected one of kernels, serve, viz, book, all, got 'server'\n"


@pytest.fixture
def environment(tmp_path):
    folder = tmp_path / ".venv"
    folder.mkdir()
    return folder


def test_with_the_pdm_of_the_course(environment):
    (environment / "pdm" / "bin").mkdir(parents=True)
    (environment / "pdm" / "bin" / "python").touch()
    pdm = [str(environment / "pdm" / "bin" / "python"), "-m", "pdm", "install", "--frozen-lockfile"]
    assert command_for(["serve"], environment) == [*pdm, "--prod", "-G", "serve"]
    assert command_for(["book", "viz"], environment) == [*pdm, "-G", "book", "-G", "viz"]


def test_with_uv(environment):
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\nuv = 0.9.1\n")
    sync = ["uv", "sync", "--inexact"]
    assert command_for(["book", "viz"], environment) == [*sync, "--group", "book", "--extra", "viz"]
    pip = ["uv", "pip", "install", "--python", sys.executable]
    assert command_for(["viz"], environment, is_clone=False) == [*pip, "matplotlib>=3.9"]


def test_with_pip(environment, monkeypatch):
    monkeypatch.setattr(install, "ROOT", environment)  # no .pdm-python there
    monkeypatch.setattr(install, "requirements_of", lambda part: [part.upper()])
    assert command_for(["serve", "viz"], environment) == [sys.executable, "-m", "pip", "install", "SERVE", "VIZ"]


def test_no_group_brings_another():
    """PDM adds all groups unless one is named or --prod is given, and refuses --prod with a group."""
    assert options_of_pdm(["kernels", "serve", "kernels"]) == ["--prod", "-G", "kernels", "-G", "serve"]
    assert options_of_pdm(["kernels", "book"]) == ["-G", "kernels", "-G", "book"]


@pytest.fixture
def without_serve(monkeypatch, tmp_path):
    """Hide the packages in `absent`, which the server needs, until this folder contains them."""
    monkeypatch.setattr(extras, "requirements_of", lambda part: {"serve": ["absent>=1"]}.get(part, []))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "pdm").mkdir()
    return tmp_path


def installing(monkeypatch, *command):
    monkeypatch.setattr(install, "command_for", lambda parts: [sys.executable, "-c", *map(str, command)])


def test_what_was_installed_is_said_and_kept(without_serve, monkeypatch):
    package = without_serve / "absent-1.0.dist-info"
    installs = f"{INSTALLS}; (Path(sys.argv[1]) / 'METADATA').write_text('Name: absent\\nVersion: 1.0\\n')"
    installing(monkeypatch, installs, package)
    assert missing("serve") == ["absent"]
    run = call("install", "serve", "--lang", "en")
    assert run.exit_code == 0
    assert run.stdout.startswith("Installed: serve. New packages: 1, in ")
    assert "-G serve" in (without_serve / "options").read_text()
    installing(monkeypatch, "raise SystemExit('this is not called again')")
    assert call("install", "serve", "--lang", "en").stdout == "Installed: serve. New packages: 0, in 0 s.\n"


@pytest.mark.parametrize(
    ("program", "reason"), [("raise SystemExit(3)", "not installed: absent"), ("", "not installed: absent")]
)
def test_a_failure(without_serve, monkeypatch, program, reason):
    installing(monkeypatch, program)
    run = call("install", "serve")
    assert run.exit_code == 1
    assert f"failed ({reason}); the output above says why" in run.stderr
    assert not (without_serve / "options").exists()


@pytest.mark.parametrize(("name", "what"), [("book", "book"), ("check", "all")])
def test_a_command_says_what_to_install_for_it(monkeypatch, name, what):
    monkeypatch.setattr(commands, "missing", lambda what: ["sphinx", "furo"])
    run = call(name)
    assert run.exit_code == 2
    assert run.stderr == f"error: missing packages: sphinx, furo. To install them: ./course install {what}\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Return a site-packages folder with the packages as a wheel installs them, without a clone."""
    site = tmp_path_factory.mktemp("environment") / "site-packages"
    for package in (ROOT / "src").iterdir():
        if package.is_dir() and not package.name.endswith(".egg-info"):
            ignored = shutil.ignore_patterns("__pycache__", "mistakes")
            shutil.copytree(package, site / package.name, ignore=ignored)

    def run(*arguments):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TINY_LLM_")}
        command = [sys.executable, "-m", "tiny_llm_course", *arguments]
        environment = kept | {"PYTHONPATH": str(site), "LANG": "C.UTF-8"}
        return subprocess.run(command, cwd=site.parent, env=environment, capture_output=True, text=True, timeout=600)

    return run


@pytest.mark.parametrize("name", ["next", "solution", "test-ref", "check"])
def test_a_command_that_needs_a_clone_says_so(wheel, name):
    run = wheel(name)
    message = (
        f"`{name}` needs a clone of the course, but this folder is not a clone; "
        "clone the repository, and run the command there"
    )
    assert (run.returncode, run.stdout, run.stderr) == (2, "", f"error: {message}\n")


def test_commands_that_work_without_a_clone(wheel):
    listed = {line.split()[1] for line in wheel("--help").stdout.splitlines() if line.startswith("│ ")}
    assert listed >= ANYWHERE
    assert not listed & ({*ALL} - ANYWHERE)
    assert wheel("main", "--temp", "0", "--prompt", "x", "--max-tokens", "9").stdout.strip()
    doctor = wheel("doctor").stdout
    assert "kernel.h" not in doctor
    assert "your files" not in doctor
    assert [line.split()[0] for line in wheel("install").stdout.splitlines()[::2]] == ["kernels", "serve", "viz", "all"]
