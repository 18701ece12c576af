"""pdm.lock and uv.lock: they name the same versions, which fit pyproject.toml, and no address other than PyPI's."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

from locks import constraints, differences, foreign_addresses, requirements, unmet, versions  # noqa: E402

from tiny_llm_course.tasks.toml import parse_toml, read_toml  # noqa: E402

LOCKS = ("pdm.lock", "uv.lock")
PROJECT = read_toml(ROOT / "pyproject.toml")
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in LOCKS}
PARSED = {name: parse_toml(text) for name, text in TEXTS.items()}


device = pytest.fixture(lambda: None)  # nothing here computes on one


def test_both_locks_have_the_same_versions() -> None:
    """If this fails: ./course python scripts/locks.py --keep"""
    assert differences(PARSED["pdm.lock"], PARSED["uv.lock"]) == []
    shared = versions(PARSED["pdm.lock"]).keys() & versions(PARSED["uv.lock"]).keys()
    assert {need.name.lower().replace("_", "-") for need in requirements(PROJECT)} <= shared


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_fits_what_the_project_asks_for(name: str) -> None:
    assert unmet(requirements(PROJECT), PARSED[name]) == []
    assert foreign_addresses(TEXTS[name]) == []


def test_uv_locked_these_very_requirements() -> None:
    (course,) = (package for package in PARSED["uv.lock"]["package"] if package["name"] == "tiny-llm")
    groups = [need for needs in course["metadata"]["requires-dev"].values() for need in needs]
    locked = {(need["name"], need.get("specifier", "")) for need in [*course["metadata"]["requires-dist"], *groups]}
    asked = {(need.name.lower().replace("_", "-"), str(need.specifier)) for need in requirements(PROJECT)}
    assert {(name, frozenset(text.split(","))) for name, text in locked} == {
        (name, frozenset(text.split(","))) for name, text in asked
    }


def test_mlx_has_a_range_with_an_end() -> None:
    """The interface against which the MLX extension is compiled may change with the second number of MLX's version."""
    needs = [need for need in requirements(PROJECT) if need.name == "mlx"]
    assert len(needs) == 2
    locked = list(versions(PARSED["pdm.lock"])["mlx"])
    for need in needs:
        assert all(map(need.specifier.contains, locked))
        assert not need.specifier.contains("0.32.2"), "MLX has another ABI of nanobind before 0.32.3"
        assert not need.specifier.contains("0.33.0")


def test_other_versions_are_found() -> None:
    older = TEXTS["uv.lock"].replace('name = "mlx"\nversion = "', 'name = "mlx"\nversion = "0.32.0+')
    assert older != TEXTS["uv.lock"]
    (found,) = differences(PARSED["pdm.lock"], parse_toml(older))
    assert re.fullmatch(r"mlx: [\d.]+ in pdm.lock, 0.32.0\+[\d.]+ in uv.lock", found)
    locked = parse_toml(re.sub(r'(name = "mlx"\nversion = ")[\d.]+', r"\g<1>0.33.1", TEXTS["pdm.lock"]))
    assert [re.split("[<>]", line)[0] for line in unmet(requirements(PROJECT), locked)] == ["mlx", "mlx[cpu]"]
    without = {"package": [each for each in PARSED["uv.lock"]["package"] if each["name"] != "rich"]}
    assert unmet(requirements(PROJECT), without) == ["rich>=13: not locked"]


@pytest.mark.parametrize(
    "line",
    [
        'source = { registry = "https://index.example/simple" }',
        'sdist = { url = "https://files.example/rich-1.tar.gz", hash = "sha256:0" }',
        'url = "http://pypi.org/simple"',
    ],
)
def test_a_foreign_address_is_found(line: str) -> None:
    assert len(foreign_addresses(f"{TEXTS['uv.lock']}\n{line}\n")) == 1


def test_versions_that_differ_by_python_are_kept_apart() -> None:
    lock = {
        "package": [
            {"name": "a", "version": "1", "marker": 'python_version == "3.10"'},
            {"name": "a", "version": "2", "marker": 'sys_platform != "x" and python_version >= "3.11"'},
            {"name": "b", "version": "3"},
        ]
    }
    assert list(constraints(versions(lock))) == [
        'a==1; python_version < "3.11"',
        'a==2; python_version >= "3.11"',
        "b==3",
    ]
