"""The book's directives, formulas, search and language switch on a small book, and checks that must fail."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import quickjs
from sphinx.cmd.build import build_main

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "scripts"), str(ROOT / "book")]

import check_book_pages  # noqa: E402
from extension.course import inline, split_diagnosis  # noqa: E402
from extension.search import split_query  # noqa: E402

import book  # noqa: E402
from tiny_llm_course.catalogue import entry_of  # noqa: E402
from tiny_llm_course.learner.next_steps import command_of  # noqa: E402
from tiny_llm_course.tasks.syllabus import TaskId, select_days  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:'myst_parser")

LANGUAGES = ("en", "ja")
INDEX = """\
# Front page

```{toctree}
week_1/day_1
```
"""
CHAPTER = r"""# A chapter

To [](#w1d1.1), by {ref}`w1d1.2` and $\operatorname{softmax}(x)$:

$$ \begin{aligned} a &= 1 \\ b &= 2 \end{aligned} $$ (two)

See {eq}`two`.

```{task} w1d1.1
```

```{task} w1d1.2
Content of the box.
```

```{hints} w1d1.1
```

```{solution} w1d1.2
Line by line.
```

```{mistakes} w1d1
```

```{output} run
```
"""
BY_AUTHOR = {
    "A chapter",
    r"To [](#w1d1.1), by {ref}`w1d1.2` and $\operatorname{softmax}(x)$:",
    "See {eq}`two`.",
    "Content of the box.",
    "Line by line.",
}
OUTPUT = "$ ./course main\n 42% <of> *it*\n# and `this`\n"
BROKEN = {
    "[](#nowhere)": "nowhere",
    "[there](index.md#never)": "local id not found in doc 'index': 'never'",
    "[there](no_page.md)": "no_page.md",
    "{ref}`no-label`": "no-label",
    r"$\nocommand$": "\\nocommand",
    "```{task} w9d9.9\n```": "there is no task 'w9d9.9'",
    "```{hints} w1d1\n```": "there is no task 'w1d1'",
    "```{mistakes} w9d9\n```": "there is no week '9'",
    "```{output} nothing\n```": "there is no outputs/nothing.txt",
    "```{output} no_command\n```": "expected `$ ` and a command in line 1, got 'text'",
}
PO = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=utf-8\\n"\n\n'
QUERIES = [
    *("軸", "注意機構", "RoPEは回転", "トップ・ダウン", "ＱＫ^T", "ﾊﾞｯﾁ", "コーヒー 2杯", "々", "〇×", "…、。"),
    *("softmax(x)_i", "naïve café", "αβγ", "한국어", "1/√D", "x²", "", "が\u3099"),
]


device = pytest.fixture(lambda: None)  # nothing here computes on one


def build(builder: str, source: Path, out: Path, *options: str) -> str:
    """Build a book. Return the warnings, each of which makes the build fail, as in scripts/book.py."""
    warnings = out.with_suffix(".log")
    arguments = ["--fail-on-warning", "--keep-going", "-q", "--no-color", "-b", builder, "-w", str(warnings), *options]
    failed = build_main([*arguments, str(source), str(out)])
    text = warnings.read_text(encoding="utf-8")
    assert bool(failed) == bool(text)
    return text


def build_pages(source: Path, folder: Path) -> None:
    """Build a book in both languages. Fail at a warning."""
    for language in LANGUAGES:
        assert build("html", source, folder / language, "-D", f"language={language}") == ""


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def small_book(folder: Path, files: dict[str, str]) -> Path:
    """Write a small book with the real book's conf.py."""
    folder.mkdir()
    for name in ("conf.py", "_static", "_templates", "extension"):
        (folder / name).symlink_to(ROOT / "book" / name)
    return write(folder, files)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("book")
    translated = PO + 'msgid "Line by line."\nmsgstr "1 行ずつ。"\n'
    files = {"index.md": INDEX, "week_1/day_1.md": CHAPTER, "outputs/run.txt": OUTPUT}
    source = small_book(folder / "source", files | {"locale/ja/LC_MESSAGES/week_1/day_1.po": translated})
    assert build("gettext", source, folder / "gettext") == ""
    build_pages(source, folder)
    return folder


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def page(built: Path, language: str) -> str:
    return (built / language / "week_1" / "day_1.html").read_text(encoding="utf-8")


def said(page: str) -> str:
    """Return the text that a reader sees, with straight quotation marks."""
    return html.unescape(re.sub(r"<[^>]*>", "", page)).translate(str.maketrans("‘’“”", "''\"\""))


def folded(page: str) -> list[str]:
    """Return the texts that a reader sees after a click, one per block."""
    return [said(block) for block in re.findall("<details.*?</details>", page, re.DOTALL)]


def test_a_task_says_where_its_code_goes_and_how_it_is_tested(built: Path, language: str) -> None:
    text = page(built, language)
    first, second = re.findall(r'<div class="task.*?</div>', text, re.DOTALL)
    title = {"en": "Task 1: Scaled dot-product attention", "ja": "課題 1：スケール付き内積アテンション"}[language]
    assert title in said(first)
    assert "src/tiny_llm/attention.py: scaled_dot_product_attention_simple" in said(first)
    assert "./course test w1d1.1" in said(first)
    assert "src/tiny_llm/basics.py: linear" in said(second)
    assert "SimpleMultiHeadAttention.__call__" in said(second)
    assert "_split" not in second  # a helper of the reference
    assert "Content of the box." in said(second)
    assert f'<a class="reference internal" href="#w1d1-1"><span class="std std-ref">{title}</span></a>' in text


def test_hints_are_the_catalogues(built: Path, language: str) -> None:
    blocks = folded(page(built, language))
    for number, hint in enumerate(entry_of(TaskId(1, 1, 1)).hints):
        assert {"en": f"Hint {number + 1}", "ja": f"ヒント {number + 1}"}[language] in blocks[number]
        assert hint[language].strip("\n").replace("`", "") in blocks[number]


def test_a_solution_is_the_references_with_its_places(built: Path, language: str) -> None:
    solution = folded(page(built, language))[3]
    assert {"en": "Solution", "ja": "解答"}[language] in solution
    assert {"en": "Line by line.", "ja": "1 行ずつ。"}[language] in solution
    assert "src/tiny_llm_ref/attention.py, class SimpleMultiHeadAttention" in solution
    lines = (ROOT / "src/tiny_llm_ref/attention.py").read_text(encoding="utf-8").splitlines()
    numbered = re.findall(r"^ *(\d+)(.*_split\(.*)$", solution, re.MULTILINE)
    assert len(numbered) == 4
    assert all(lines[int(number) - 1] == code for number, code in numbered)


def test_mistakes_are_the_catalogues(built: Path, language: str) -> None:
    text = said(page(built, language))
    for task in (1, 2):
        for mistake in entry_of(TaskId(1, 1, task)).mistakes:
            for part in split_diagnosis(mistake.diagnosis[language]):
                assert part.replace("`", "") in text


@pytest.mark.parametrize(
    ("text", "what", "why"),
    [
        ("This is what you get when N.. is kept. It is not.", "When N.. is kept", "It is not."),
        ("This is what you get with `x`.", "With `x`", ""),
        ("x を y にした場合の結果です（`z`）。違います。", "x を y にした場合（`z`）", "違います。"),
    ],
)
def test_a_diagnosis_is_shortened(text: str, what: str, why: str) -> None:
    assert split_diagnosis(text) == (what, why)


def test_only_backticks_are_markup() -> None:
    parts = inline("h*D to `(h+1)*D`, [x](y)")
    assert [(part.tagname, part.astext()) for part in parts] == [
        ("#text", "h*D to "),
        ("literal", "(h+1)*D"),
        ("#text", ", [x](y)"),
    ]


def test_output_is_shown_as_it_is(built: Path, language: str) -> None:
    (block,) = re.findall(r'<pre class="output.*?</pre>', page(built, language), re.DOTALL)
    assert said(block).strip("\n") == OUTPUT.rstrip("\n")
    assert '<span class="command">$ ./course main</span>' in block


def test_translators_see_only_what_authors_wrote(built: Path) -> None:
    templates = {str(file.relative_to(built / "gettext")) for file in (built / "gettext").rglob("*.pot")}
    assert templates == {"index.pot", "week_1/day_1.pot"}
    with (built / "gettext/week_1/day_1.pot").open("rb") as file:
        assert {message.id for message in book.read_po(file) if message.id} == BY_AUTHOR


def test_formulas_need_nothing_but_a_stylesheet(built: Path, language: str) -> None:
    text = page(built, language)
    assert text.count('class="katex"') == 2
    assert 'href="../_static/katex.css' in text
    assert 'id="equation-two"' in text
    assert not re.search("<script[^>]*(math|katex)", text, re.IGNORECASE)
    assert "katex.css" not in (built / language / "index.html").read_text(encoding="utf-8")
    fonts = re.findall(r"src:url\((.{15})", (built / language / "_static/katex.css").read_text(encoding="utf-8"))
    assert len(fonts) == 20
    assert set(fonts) == {"data:font/woff2"}


@pytest.mark.parametrize("name", ["index.html", "week_1/day_1.html", "search.html", "genindex.html"])
def test_each_page_leads_to_the_other_language(built: Path, language: str, name: str) -> None:
    other, label = {"en": ("ja", "日本語"), "ja": ("en", "English")}[language]
    file = built / language / name
    links = re.findall(r'<a class="language" .*?href="(.*?)">(.*?)</a>', file.read_text(encoding="utf-8"))
    assert links
    for href, text in links:
        assert text == label
        assert (file.parent / href).resolve() == (built / other / name).resolve()
        assert (file.parent / href).exists()


def test_queries_are_split_alike_in_python_and_in_the_browser(built: Path) -> None:
    context = quickjs.Context()
    context.eval("var window = {};" + (built / "ja/_static/language_data.js").read_text(encoding="utf-8"))
    split = context.eval("query => JSON.stringify(splitQuery(query))")
    for query in QUERIES:
        assert json.loads(split(query)) == split_query(query), query
    assert split_query("RoPEは注意機構の軸") == ["RoPE", "は注", "注意", "意機", "機構", "構の", "の軸"]


def test_the_index_has_words_pairs_and_single_characters(built: Path) -> None:
    index = json.loads((built / "ja/searchindex.js").read_text(encoding="utf-8")[len("Search.setIndex(") : -1])
    chapter = index["docnames"].index("week_1/day_1")
    for term in ["softmax", "行", *split_query("転置した"), *split_query("重み付き平均")]:
        assert chapter in [index["terms"][term]] or chapter in index["terms"][term], term


def test_what_is_broken_fails_the_build(tmp_path: Path) -> None:
    pages = {"index.md": "# Front page\n\n" + "\n\n".join(BROKEN), "outputs/no_command.txt": "text\n"}
    warnings = build("html", small_book(tmp_path / "source", pages), tmp_path / "out")
    for said in BROKEN.values():
        assert said in warnings
    assert len(warnings.strip().splitlines()) == len(BROKEN)


def test_a_broken_link_in_a_translation_fails_the_build(tmp_path: Path) -> None:
    translated = PO + 'msgid "See [](#front-page)."\nmsgstr "[](#nowhere) を参照。"\n'
    pages = {"index.md": "# Front page\n\nSee [](#front-page).\n", "locale/ja/LC_MESSAGES/index.po": translated}
    assert "nowhere" in build("html", small_book(tmp_path / "source", pages), tmp_path / "out", "-D", "language=ja")


def po(translation: str, mark: str = "") -> str:
    return f'{PO}{mark}msgid "What is said."\nmsgstr "{translation}"\n'


@pytest.mark.parametrize(
    ("catalogue", "problems"),
    [
        (po("言われたこと。"), []),
        (None, ["not translated: What is said."]),
        (PO, ["not translated: What is said."]),
        (po(""), ["not translated: What is said."]),
        (po("What is said."), ["equal to its source: What is said."]),
        (po("言われたこと。", "#, fuzzy\n"), ["fuzzy: What is said."]),
        (po("言われたこと。") + '\nmsgid "Unsaid"\nmsgstr "なし"\n', ["no longer in the book: Unsaid"]),
        (po("言われたこと。") + '\n#~ msgid "Gone"\n#~ msgstr "昔"\n', ["obsolete: Gone"]),
    ],
)
def test_stale_translations(tmp_path: Path, catalogue: str | None, problems: list[str]) -> None:
    write(tmp_path, {"templates/a/page.pot": po("")} | ({"ja/a/page.po": catalogue} if catalogue else {}))
    assert book.stale_translations(tmp_path / "templates", tmp_path / "ja") == [f"a/page.po: {p}" for p in problems]


def test_a_catalogue_without_a_page(tmp_path: Path) -> None:
    write(tmp_path, {"ja/old.po": po("言われたこと。")})
    lines = book.stale_translations(tmp_path / "templates", tmp_path / "ja")
    assert lines == ["old.po: no longer in the book: What is said."]


@pytest.mark.parametrize("text", ["Hand out", "Multi-head attention", "See `x`, and then $y$.", "**Not like this.**"])
def test_prose(text: str) -> None:
    assert book.is_prose(text)


@pytest.mark.parametrize(
    "text",
    [
        "tiny-llm",
        "`a b c`",
        "$x$ and",
        "RMSNorm, RoPE",
        "Vaswani et al. 2017, *Attention is all you need*",
        "float16 x",
    ],
)
def test_no_prose(text: str) -> None:
    assert not book.is_prose(text)


def test_a_chapter_has_a_section_for_each_task(tmp_path: Path) -> None:
    assert book.missing_sections(tmp_path) == []
    write(tmp_path, {"week_1/day_1.md": "```{task} w1d1.1\n```\n"})
    assert book.missing_sections(tmp_path) == ["week_1/day_1.md: no {task} section for w1d1.2"]
    write(tmp_path, {"week_1/more.md": ":::{task} w1d1.2\n:::\n"})
    assert book.missing_sections(tmp_path) == []


def test_pages_in_a_browser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = {
        "good": '<div style="overflow:auto"><p style="width:900px">wide',
        "wide": '<article><p style="width:900px">wide',
        "folded": '<details><summary>more</summary><p style="width:900px">wide',
        "code": f"<article><pre style='overflow:auto'>{'code ' * 50}",
        "formula": f"<article><div class='katex-display' style='overflow:auto'>{'xy' * 40}",
        "missing": '<img src="no.png">',
        "script": "<script>nothing()</script>",
        "network": '<script>fetch("http://127.0.0.1:9/x").catch(() => 0)</script>',
    }
    write(tmp_path, {f"en/{name}.html": f"<!doctype html><body>{body}" for name, body in pages.items()})
    monkeypatch.setattr(check_book_pages, "SEARCHES", {"en": {}})
    assert check_book_pages.main(tmp_path) == 1, "needs Chromium"
    problems = capsys.readouterr().err
    assert "good" not in problems
    assert 'wide.html: wider than 390 pixels: <p style="width:900px">' in problems
    assert "folded.html: wider than 390 pixels" in problems
    assert "wider than 1280" not in problems
    assert "code.html: has to be scrolled at 1280 pixels: 'code code" in problems
    assert "code.html: the keyboard cannot scroll at 390 pixels: 'code code" in problems
    assert "formula.html: the keyboard cannot scroll at 390 pixels: 'xyxy" in problems
    assert "missing.html: console: Failed to load resource: net::ERR_FILE_NOT_FOUND" in problems
    assert "script.html: script: nothing is not defined" in problems
    assert "network.html: requests http://127.0.0.1:9/x" in problems


def test_no_book_or_no_browser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_book_pages.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert check_book_pages.main(tmp_path) == 2
    assert "`./course book` builds the book" in capsys.readouterr().err
    monkeypatch.setattr(check_book_pages.shutil, "which", lambda name: None)
    assert check_book_pages.main(tmp_path) == 2
    assert "apt-get install chromium" in capsys.readouterr().err


def look_same(one: Path, other: Path) -> bool:
    """Tell whether two SVG files are equal except for the last digits, and for the names that are made from these."""
    (texts, numbers), (other_texts, other_numbers) = (texts_and_numbers(file) for file in (one, other))
    return texts == other_texts and numbers == pytest.approx(other_numbers, abs=0.02)


def texts_and_numbers(file: Path) -> tuple[list[str], list[float]]:
    names = r"\b[a-z][0-9a-f]{10}\b"
    parts = re.split(r"(-?\d+(?:\.\d+)?)", re.sub(names, "", file.read_text(encoding="utf-8")))
    return parts[::2], [float(number) for number in parts[1::2]]


def test_pictures_that_look_different_are_told_apart(tmp_path: Path) -> None:
    def written(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    kept = written("kept", '<path d="M 11.51 32.49" clip-path="url(#pdd5d824021)"/>')
    assert look_same(kept, written("a", '<path d="M 11.510001 32.489999" clip-path="url(#p0a5d824027)"/>'))
    assert not look_same(kept, written("b", '<path d="M 11.61 32.49" clip-path="url(#pdd5d824021)"/>'))
    assert not look_same(kept, written("c", '<path d="L 11.51 32.49" clip-path="url(#pdd5d824021)"/>'))
    assert not look_same(kept, written("d", '<path d="M 11.51" clip-path="url(#pdd5d824021)"/>'))


def test_every_picture_is_drawn_and_shown(tmp_path: Path) -> None:
    """scripts/book_pictures.py draws it exactly so today, or it is drawn by hand; and a chapter shows it."""
    command = [sys.executable, str(ROOT / "scripts/book_pictures.py"), "--into", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    drawn = {file.relative_to(tmp_path) for file in tmp_path.rglob("*.svg")}
    kept = {file.relative_to(ROOT / "book") for file in (ROOT / "book").rglob("images/*.svg")}
    assert len(drawn) > 15
    assert drawn <= kept
    assert [str(file) for file in sorted(drawn) if not look_same(tmp_path / file, ROOT / "book" / file)] == []
    chapters = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "book").rglob("*.md"))
    names = {file.name.replace(".ja.svg", ".svg") for file in kept}
    assert [name for name in names if f"images/{name}" not in chapters] == []


def test_the_step_after_each_day_is_in_its_chapter():
    for day in select_days(None, None):
        chapter = (ROOT / f"book/week_{day.week}/day_{day.number}.md").read_text(encoding="utf-8")
        outputs = re.findall(r"(?m)^```\{output\} (\w+)", chapter)
        shown = [(ROOT / f"book/outputs/{name}.txt").read_text(encoding="utf-8").splitlines()[0] for name in outputs]
        listed = [f"$ {line}" for line in chapter.splitlines() if line.startswith("./course ")]
        assert any(line.startswith(f"$ {command_of(day)}") for line in [*shown, *listed]), day
        if "./course python " in command_of(day):  # runs what was written on that day
            script = ROOT / command_of(day).removeprefix("./course python ")
            assert "from tiny_llm." in script.read_text(encoding="utf-8")
