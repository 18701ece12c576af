"""Finds the sentences that readers see in a file of the repository, in English and Japanese, with line numbers.

Code, formulas, printed output, and the catalogue's ids, edits and pseudo-code are not prose. Within a sentence, code
and quotations are masked, because quoted words do not show the author's habits.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Sentence", "kind_of", "sentences"]

CODE, MARKUP = "◦", "·"  # replace masked characters: CODE counts as a word, MARKUP does not
WITH_PROSE = {
    "answer",
    "figure",
    "figures",
    "glossary",
    "grid",
    "grid-item",
    "note",
    "solution",
    "tip",
    "warning",
    "admonition",
}
BOOK, CATALOGUE, MESSAGES, DOCSTRINGS = "book", "catalogue", "messages", "docstrings"
COURSE = "src/tiny_llm_course/"
TUTOR = "src/tiny_llm/AGENTS.md"

# What to mask in Markdown (md), and in docstrings and messages (text). A mask is as long as the text that it replaces.
CODE_SPAN = r"(?P<tick>`+)(?!`).+?(?<!`)(?P=tick)(?!`)"
QUOTED = r'"[^"]{1,160}"|“[^”]{1,160}”|‘[^’]{1,80}’'
MASKS = {
    "md": re.compile(
        rf"(?P<code>(?:\{{[\w:-]+\}})?{CODE_SPAN}|\$[^$\n]+\$|{QUOTED}|https?://\S+)"
        r"|(?P<markup>!?\[(?=[^\]]*\]\()|\]\([^)\s]*\)|\*\*?|<[^<>]+>|^\s*(?:[-*]|\d+\.|#+|>)\s+)",
        re.DOTALL | re.MULTILINE,
    ),
    "text": re.compile(rf"(?P<code>{CODE_SPAN}|{QUOTED}|\{{[^{{}}]*\}}|https?://\S+)", re.DOTALL),
}
JAPANESE_MASKS = re.compile(
    rf"(?P<code>(?:\{{[\w:-]+\}})?{CODE_SPAN}|\$[^$\n]+\$|https?://\S+|\{{[^{{}}]*\}})|(?P<markup>\*\*?|\]\([^)\s]*\))",
    re.DOTALL,
)
ENDS = {
    "en": re.compile(rf"(?<!\.\.)(?<!\be\.g)(?<!\bi\.e)(?<!\bal)(?<!\bvs)[.!?][{MARKUP})\"”]*\s+"),
    "ja": re.compile(r"[。！？][」）]?\s*"),
}
TEXT_OF_TOML = re.compile(
    r"^\[+(?P<header>[\w.]+)\]+$|(?:^|[{,] *)(?P<language>en|ja) = "
    r'(?P<text>"""(?:[^"\\]|\\.|"(?!""))*"""|"(?:[^"\\\n]|\\.)*")',
    re.MULTILINE,
)
# A paragraph of a docstring. A line that starts with a parameter's name and a colon starts a paragraph, too.
PARAGRAPH = re.compile(r"(?:(?!\n[ \t]*\n|\n[ \t]*\*{0,2}[a-z_]\w*(?:, \w+)*: ).)+", re.DOTALL)
ENTRY_OF_PO = re.compile(r'^msgid ""\nmsgstr|^msgstr (?P<text>(?:".*"\n?)+)', re.MULTILINE)


@dataclass(frozen=True)
class Sentence:
    """A sentence in its printed form (`text`), and in the form in which habits are searched for (`masked`)."""

    kind: str  # book, catalogue, messages or docstrings
    language: str
    file: str
    line: int
    text: str
    masked: str
    opens: bool = False  # whether the sentence opens a function's docstring


@dataclass(frozen=True)
class _Passage:
    line: int
    text: str
    language: str = "en"
    masks: re.Pattern[str] = MASKS["text"]
    of_function: bool = False


def kind_of(file: str) -> str | None:
    """Return the kind of text in a file, or None if readers do not see the text. file: a path in the repository."""
    if file.startswith(COURSE + "catalogue/") and file.endswith(".toml"):
        return CATALOGUE
    if file.startswith(COURSE) and file.endswith(".toml"):
        return MESSAGES
    if file.endswith((".md", ".po")) and (file.startswith(("book/", "docs/")) or "/" not in file or file == TUTOR):
        return BOOK
    if file.startswith("src/") and file.endswith(".py") and not file.startswith("src/tiny_llm/"):
        return DOCSTRINGS
    return None


def sentences(file: str, content: str) -> list[Sentence]:
    """Find the sentences of a file. The help texts of options in Python code count as messages."""
    kind = kind_of(file)
    if kind is None:
        return []
    if file.endswith(".py"):
        try:
            tree = ast.parse(content)
        except SyntaxError:
            return []  # other gates report the error
        parts = [(DOCSTRINGS, _docstrings(tree)), (MESSAGES, _help_texts(tree) if "help=" in content else [])]
    else:
        reader = {"md": _markdown, "po": _translations, "toml": _toml}[file.rpartition(".")[2]]
        parts = [(kind, reader(content))]
    found = []
    for kind, passages in parts:
        for passage in passages:
            language = "ja" if file.endswith(".ja.md") else passage.language
            found += _split(kind, file, language, passage)
    return found


def _split(kind: str, file: str, language: str, passage: _Passage) -> Iterator[Sentence]:
    masks = JAPANESE_MASKS if language == "ja" else passage.masks
    masked = masks.sub(_mask, passage.text)
    begin, line = 0, passage.line
    for end in [*(match.end() for match in ENDS[language].finditer(masked)), len(masked)]:
        text = passage.text[begin:end]
        if words := text.split():
            first = line + text.count("\n", 0, text.index(words[0]))
            hidden = " ".join(masked[begin:end].split())
            yield Sentence(kind, language, file, first, " ".join(words), hidden, passage.of_function and begin == 0)
        begin, line = end, line + text.count("\n")


def _mask(match: re.Match[str]) -> str:
    """Mask a part of a sentence. If a quotation ends with a full stop or the like, keep that character, because the
    sentence may end there, too."""
    if match["code"] and match[0][-1] in '"”’' and match[0][-2] in ".!?":
        return CODE * (len(match[0]) - 2) + match[0][-2] + MARKUP
    return (CODE if match["code"] else MARKUP) * len(match[0])


def _markdown(content: str) -> Iterator[_Passage]:
    """Yield the paragraphs, list items, headings and table cells of a Markdown file."""
    lines: list[str] = []
    fences: list[tuple[str, bool]] = []  # the closing line of each open fence, and whether the fence contains prose
    in_formula = in_comment = False
    for number, line in enumerate([*content.split("\n"), ""], 1):
        bare = line.strip()
        fence = re.match(r"(`{3,}|~{3,}|:{3,})(?:\{([\w-]+)\})?", bare)
        is_text = all(prose for _, prose in fences) and not in_formula and not in_comment
        if fence and fences and bare == fences[-1][0]:
            fences.pop()
        elif fence and is_text:
            fences.append((fence[1], fence[2] in WITH_PROSE))
        elif bare.startswith("$$") and all(prose for _, prose in fences):
            in_formula ^= bare.count("$$") == 1
        elif bare.startswith("<!--") or in_comment:
            in_comment = "-->" not in bare
        elif is_text and bare.startswith("|"):
            yield from (_Passage(number, cell, masks=MASKS["md"]) for cell in bare.strip("|").split(" | "))
        elif is_text and bare and not re.match(r":[\w-]+:|\(.*\)=$|---|%", bare):
            if lines and re.match(r"\s*(?:[-*]|\d+\.|#+) ", line):
                yield _Passage(number - len(lines), "\n".join(lines), masks=MASKS["md"])
                lines = []
            lines.append(line)
            if not bare.startswith("#"):
                continue
            number += 1
        if lines:
            yield _Passage(number - len(lines), "\n".join(lines), masks=MASKS["md"])
            lines = []


def _translations(content: str) -> Iterator[_Passage]:
    for match in ENTRY_OF_PO.finditer(content):
        if match["text"]:
            text = "".join(_unescaped(line) for line in match["text"].splitlines())
            yield _Passage(content.count("\n", 0, match.start()) + 1, text, "ja")


def _toml(content: str) -> Iterator[_Passage]:
    header, line, position = "", 1, 0
    for match in TEXT_OF_TOML.finditer(content):
        if match["header"]:
            header = match["header"]
            continue
        line += content.count("\n", position, match.start("text"))
        position = match.start("text")
        if not match["text"].startswith('"""'):
            yield _Passage(line, _unescaped(match["text"]), match["language"])
        elif header != "tasks.hints":  # the third hint is pseudo-code
            yield from _lines(line, match["text"][3:-3], match["language"])


def _lines(line: int, text: str, language: str) -> Iterator[_Passage]:
    """Cut a text after each line with room for another word, because the author ended such a line on purpose. Also cut
    it before indented lines and list items."""
    begin, lines = line, []
    for number, part in enumerate(text.split("\n"), line):
        if lines and re.match(r" *- |  ", part):
            yield _Passage(begin, "\n".join(lines), language)
            lines = []
        begin = begin if lines else number
        lines.append(part)
        if len(part.encode()) < 80:
            yield _Passage(begin, "\n".join(lines), language)
            lines = []
    if lines:
        yield _Passage(begin, "\n".join(lines), language)


def _unescaped(text: str) -> str:
    return str(ast.literal_eval(text)).replace("\n", " ") if "\\" in text else text[1:-1]


Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _definitions(node: ast.AST) -> Iterator[Definition]:
    """Yield a module and its definitions. Skip expressions, because they make up most of a tree."""
    if isinstance(node, Definition):
        yield node
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        for part in getattr(node, field, ()):
            yield from _definitions(part)


def _docstrings(tree: ast.Module) -> Iterator[_Passage]:
    for node in _definitions(tree):
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            acts = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_property(node)
            yield from _paragraphs(first.lineno, first.value.value, acts)


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(re.search(r"property|setter", ast.unparse(decorator)) for decorator in node.decorator_list)


def _paragraphs(line: int, docstring: str, of_function: bool) -> Iterator[_Passage]:
    """Cut a docstring into paragraphs. Leave out shapes, sources, task ids and indented code, which are not prose."""
    base = min((len(row) - len(row.lstrip()) for row in docstring.split("\n")[1:] if row.strip()), default=0)
    for match in PARAGRAPH.finditer(docstring):
        text = match[0].lstrip("\n")
        rows = text.split("\n")
        is_code = match.start() and all(row.startswith(" " * (base + 4)) for row in rows)
        if not is_code and not re.match(r"\s*(Shapes?|Task|Source|Sources)\b.*:", text):
            begin = line + docstring.count("\n", 0, match.start()) + len(match[0]) - len(text)
            yield _Passage(begin, text, of_function=of_function and match.start() == 0)


def _help_texts(tree: ast.Module) -> Iterator[_Passage]:
    """Yield the help texts of options and arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "help":
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                yield _Passage(node.value.lineno, node.value.value)
            elif isinstance(node.value, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.value.values]
                yield _Passage(node.value.lineno, "".join(map(str, parts)))
