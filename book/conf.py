"""The book: English source, Japanese by gettext. Built by `pdm run book`, without the network."""

project = "tiny-llm"
author = "the tiny-llm authors"
copyright = f"2026, {author}"

extensions = ["myst_parser", "sphinx_design"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 3
exclude_patterns = ["locale"]

language = "en"
locale_dirs = ["locale"]
gettext_compact = False  # a catalogue for each page
gettext_location = False  # a moved line is no change
gettext_last_translator = ""

html_theme = "furo"
html_title = "tiny-llm"
html_show_sphinx = False
