#!/usr/bin/env python3
"""Write the project's address from pyproject.toml into the files that are read outside a clone: READMEs and notebooks.

python scripts/address.py
"""

from __future__ import annotations

import re
from pathlib import Path

from tiny_llm_course.base.places import address

ROOT = Path(__file__).resolve().parent.parent
GITHUB = "https://github.com/"
READMES = {  # keyed by file: language, text of the book's badge, notebook
    "README.md": ("en", "The book", "notebooks/week_1_day_1.ipynb"),
    "README.ja.md": ("ja", "本を読む", "notebooks/week_1_day_1.ja.ipynb"),
}
IN_NOTEBOOK = re.compile(r'(?<="ADDRESS = \\")[^"\\]*')


def main() -> None:
    for name, text in with_address(address()).items():
        (ROOT / name).write_text(text, encoding="utf-8")


def with_address(url: str) -> dict[str, str]:
    """Return the texts of the READMEs and notebooks with this address, keyed by file name."""
    found = {}
    for readme, (_, _, notebook) in READMES.items():
        found[readme] = with_badges((ROOT / readme).read_text(encoding="utf-8"), badges(readme, url))
        found[notebook] = IN_NOTEBOOK.sub(lambda _: url, (ROOT / notebook).read_text(encoding="utf-8"))
    return found


def with_badges(readme: str, line: str) -> str:
    """Return a README with this line of badges after the title. If the line is empty, leave out the badges."""
    title, _, rest = readme.partition("\n")
    if rest.startswith("\n[!["):
        rest = rest.removeprefix("\n").partition("\n")[2]
    return f"{title}\n\n{line}\n{rest}" if line else f"{title}\n{rest}"


def badges(readme: str, url: str) -> str:
    """Return a README's badges: links to the book, CI, the notebook and a codespace. If `url` is empty, return ""."""
    if not url:
        return ""
    language, book, notebook = READMES[readme]
    repository = url.removeprefix(GITHUB)
    owner, _, name = repository.partition("/")
    colab = "https://colab.research.google.com"
    links = {
        f"[![{book}](https://img.shields.io/badge/{book.replace(' ', '%20')}-blue)]": site(owner, name)
        + f"{language}/",
        f"[![CI]({url}/actions/workflows/ci.yml/badge.svg)]": f"{url}/actions/workflows/ci.yml",
        f"[![Open in Colab]({colab}/assets/colab-badge.svg)]": f"{colab}/github/{repository}/blob/main/{notebook}",
        "[![Open in GitHub Codespaces](https://github.com/codespaces/badge.svg)]": f"https://codespaces.new/{repository}",
    }
    return " ".join(f"{badge}({target})" for badge, target in links.items())


def site(owner: str, name: str) -> str:
    """Return the address of the site that .github/workflows/pages.yml publishes on GitHub Pages."""
    return f"https://{owner.lower()}.github.io/{name}/"


if __name__ == "__main__":
    main()
