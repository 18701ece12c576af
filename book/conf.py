"""The book: English source, Japanese by gettext. Built by `./course book`, without the network."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

project = "tiny-llm"
author = "the tiny-llm authors"
copyright = f"2026, {author}"

extensions = ["myst_parser", "sphinx_design"]
extensions += [
    f"extension.{name}"
    for name in ("captions", "chapters", "code", "course", "descriptions", "front", "math", "measured", "search")
]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 3
exclude_patterns = ["locale"]
nitpicky = True

language = "en"
locale_dirs = ["locale"]
gettext_compact = False  # one catalogue per page
gettext_location = False  # without line numbers, so that moving a line changes no catalogue
gettext_last_translator = ""

html_theme = "furo"
html_title = "tiny-llm"
html_show_sphinx = False
html_copy_source = False
html_show_search_summary = False  # _static/search.js shows summaries: browsers let no page on a disk fetch a file
html_static_path = ["_static"]
html_css_files = ["page.css", "code.css", "book.css"]
html_js_files = [("book.js", {"defer": "defer"})]
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "language.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
