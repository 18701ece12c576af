"""The book as a web site: which files are published, from which repository, and the front page in a browser."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

from book_site import SITE, assemble  # noqa: E402
from check_book_pages import open_browser  # noqa: E402

WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/pages.yml").read_text(encoding="utf-8"))


device = pytest.fixture(lambda: None)  # nothing here computes on one


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Assemble the site of a book with one page in each language, from Sphinx's output."""
    book, site = tmp_path_factory.mktemp("build") / "book", tmp_path_factory.mktemp("build") / "site"
    for language in ("en", "ja", "gettext"):
        (book / language / ".doctrees").mkdir(parents=True)
        (book / language / "index.html").write_text(f"<title>{language}</title>")
    (site / "en").mkdir(parents=True)
    (site / "en" / "old.html").touch()
    assemble(book, site)
    return site


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as found:
        yield found


def test_what_is_published(site: Path) -> None:
    names = {file.relative_to(site).as_posix() for file in site.rglob("*") if file.is_file()}
    assert names == {"index.html", "en/index.html", "ja/index.html"}
    assert not [*site.rglob(".doctrees")]


@pytest.mark.parametrize(
    ("languages", "expected"),
    [(["ja-JP"], "ja"), (["en-GB"], "en"), (["fr", "ja", "en"], "ja"), (["fr", "en-US", "ja"], "en"), (["fr"], "en")],
    ids=str,
)
def test_the_front_page_leads_to_the_language_of_the_browser(
    site: Path, browser: Browser, languages: list[str], expected: str
) -> None:
    page = browser.new_page()
    page.add_init_script(f"Object.defineProperty(navigator, 'languages', {{ get: () => {languages} }})")
    page.goto((site / "index.html").as_uri())
    page.wait_for_url(f"**/{expected}/index.html")
    assert page.title() == expected
    page.close()


@pytest.mark.parametrize("language", ["en", "ja"])
def test_without_scripts_one_can_choose(site: Path, browser: Browser, language: str) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto((site / "index.html").as_uri())
    assert page.locator(f"a[href='{language}/index.html']").is_visible()
    page.close()


def steps(job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = WORKFLOW["jobs"][job]["steps"]
    return found


@pytest.mark.parametrize(
    ("address", "event", "publishes"),
    [
        ("", "push", False),
        ("", "workflow_dispatch", True),
        ("https://github.com/mia/tiny-llm", "push", True),
        ("https://github.com/mia/tiny-llm-2", "push", False),
        ("https://github.com/leo/tiny-llm", "push", False),
    ],
)
def test_from_where_it_is_published(tmp_path: Path, address: str, event: str, publishes: bool) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[tool.tiny-llm]\naddress = "{address}"  # of the repository\n')
    (script,) = (step["run"] for step in steps("where") if step.get("id") == "where")
    github = {"GITHUB_EVENT_NAME": event, "GITHUB_REPOSITORY": "mia/tiny-llm", "GITHUB_OUTPUT": str(tmp_path / "out")}
    subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=os.environ | github, check=True)
    assert (tmp_path / "out").exists() == publishes
    assert WORKFLOW["jobs"]["publish"]["if"] == "needs.where.outputs.publish == 'true'"
    if publishes:
        assert (tmp_path / "out").read_text() == "publish=true\n"


def test_the_workflow_publishes_the_site() -> None:
    found = {step.get("uses", "").partition("@")[0]: step for step in steps("publish")}
    assert found["actions/upload-pages-artifact"]["with"]["path"] == SITE.relative_to(ROOT).as_posix()
    commands = [step["run"] for step in steps("publish") if "run" in step]
    assert commands == ["./course install book", "./course python scripts/book_site.py"]
    assert (ROOT / "scripts/book_site.py").exists()
