"""Directives about the course's tasks, filled from the syllabus, the catalogue and the reference.

What they generate is in the page's language and nothing that translators see; what an author writes in them is.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx_design.shared import create_component

import tiny_llm_course
from tiny_llm_course.catalogue import Entry, entry_of
from tiny_llm_course.learner.workspace import Workspace
from tiny_llm_course.tasks.regions import is_native
from tiny_llm_course.tasks.syllabus import Day, SyllabusError, Task, Text, select_days, select_task
from tiny_llm_models import bundled
from tiny_llm_models.training.card import tables

from .reference import Listing, functions, holds_tasks, listings
from .words import word

__all__ = ["setup"]

COURSE = Path(tiny_llm_course.__path__[0])


class CourseDirective(SphinxDirective):
    """The base class of the directives."""

    required_arguments = 1

    @property
    def language(self) -> str:
        return "ja" if self.config.language == "ja" else "en"

    def word(self, key: str, **values: object) -> str:
        return word(key, self.language, **values)

    def say(self, text: Text) -> str:
        return text[self.language].strip("\n")

    def title(self, task: Task) -> str:
        return self.word("task", number=task.id.task, title=self.say(task.title))

    def task(self) -> Task:
        """Return the task of the argument."""
        self.env.note_dependency(str(COURSE / "syllabus.toml"))
        try:
            return select_task(self.arguments[0])
        except SyllabusError as error:
            raise self.error(str(error)) from None

    def day(self) -> Day:
        """Return the day of the argument."""
        match = re.fullmatch(r"w(\d+)d(\d+)", self.arguments[0])
        if match is None:
            raise self.error(f"a day looks like w1d2, got {self.arguments[0]!r}")
        try:
            return select_days(*match.groups())[0]
        except SyllabusError as error:
            raise self.error(str(error)) from None

    def entry(self, task: Task) -> Entry:
        """Return a task's entry in the catalogue."""
        self.env.note_dependency(str(COURSE / "catalogue" / f"week_{task.id.week}_day_{task.id.day}.toml"))
        try:
            return entry_of(task.id)
        except KeyError:
            raise self.error(f"the catalogue has no {task.id}") from None


class TaskBox(CourseDirective):
    """```{task} w1d1.1``` : where a task's code goes and how it is tested; what `[](#w1d1.1)` refers to."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        task = self.task()
        title = nodes.rubric("", self.title(task), names=[str(task.id)])
        self.state.document.note_explicit_target(title, title)
        files = functions(task.id)
        if not files:
            raise self.error(f"the reference has no code of {task.id}")
        where = [nodes.paragraph("", "", *_place(file, names)) for file, names in files.items()]
        test = nodes.paragraph("", "", nodes.literal("", task.id.test_command, classes=["command"]))
        rows = nodes.field_list("", _field(self.word("file"), *where), _field(self.word("test"), test))
        box = generated(nodes.container("", title, rows, classes=["task"]))
        box += self.parse_content_to_nodes()
        return [box]


class Hints(CourseDirective):
    """```{hints} w1d1.1``` : the catalogue's hints, folded."""

    def run(self) -> list[nodes.Node]:
        *words, code = (self.say(hint) for hint in self.entry(self.task()).hints)
        bodies = [nodes.paragraph("", "", *inline(text)) for text in words]
        pseudo_code = nodes.literal_block("", code, language="text")
        return [
            generated(folded(nodes.rubric("", self.word("hint", number=number)), body))
            for number, body in enumerate([*bodies, pseudo_code], start=1)
        ]


class Solution(CourseDirective):
    """```{solution} w1d1.1``` : the reference's code, folded, and then the author's text about the code."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        task = self.task()
        found = listings(task.id)
        if not found:
            raise self.error(f"the reference has no code of {task.id}")
        for listing in found:
            self.env.note_dependency(str(listing.file))
        box = generated(folded(nodes.rubric("", self.word("solution")), *map(code_block, found)))
        box += self.parse_content_to_nodes()
        return [box]


class Answer(CourseDirective):
    """```{answer} 2``` : the answer to a question of "Before you run it", folded under the question itself."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        asked = self.question()
        title = nodes.rubric(asked.rawsource, "", *(child.deepcopy() for child in asked.children))
        title.source, title.line = asked.source, asked.line  # so that the title is translated like the question
        return [folded(title, *self.parse_content_to_nodes())]

    def question(self) -> nodes.paragraph:
        """Return the question with this number in the list under "Before you run it"."""
        for section in self.state.document.findall(nodes.section):
            if "before-you-run-it" in section["ids"]:
                items = [*section.findall(nodes.list_item)]
                if self.arguments[0] in map(str, range(1, len(items) + 1)):
                    return next(items[int(self.arguments[0]) - 1].findall(nodes.paragraph))
        raise self.error(f'"Before you run it" has no question {self.arguments[0]} above this place')


class Mistakes(CourseDirective):
    """```{mistakes} w1d1``` : the catalogue's mistakes of a day, folded task by task."""

    def run(self) -> list[nodes.Node]:
        return [
            generated(folded(nodes.rubric("", self.title(task)), self.mistakes_of(task))) for task in self.day().tasks
        ]

    def mistakes_of(self, task: Task) -> nodes.definition_list:
        found = nodes.definition_list(classes=["mistakes"])
        for mistake in self.entry(task).mistakes:
            what, why = split_diagnosis(self.say(mistake.diagnosis))
            item = nodes.definition_list_item("", nodes.term("", "", *inline(what)))
            item += nodes.definition("", *([nodes.paragraph("", "", *inline(why))] if why else []))
            found += item
        return found


class Stuck(CourseDirective):
    """```{stuck} w1d1``` : the commands that copy a day's reference, and the days whose tasks are in the same files."""

    def run(self) -> list[nodes.Node]:
        day = self.day()
        workspace = Workspace()
        files = [file.relative_to(workspace.package).as_posix() for file in workspace.files(day) if holds_tasks(file)]
        copies = "\n".join(f"cp src/tiny_llm_ref/{name} src/tiny_llm/{name}" for name in files)
        said = [self.word("copied")]
        if others := [self.word("day", week=other.week, day=other.number) for other in self.beside(day)]:
            said.append(self.word("copied_too", days=self.word("and").join(others)))
        said.append(self.word("written", day=f"{day.week}.{day.number}"))
        text = nodes.paragraph("", "", *inline(self.word("space").join(said)))
        return [generated(nodes.literal_block("", copies, language="sh")), generated(text)]

    def beside(self, day: Day) -> list[Day]:
        """Return the other days with tasks in the same files."""
        return [other for other in select_days(None, None) if other != day and {*other.modules} & {*day.modules}]


class Figures(CourseDirective):
    """```{figures} story answers``` : a table of a bundled model's card, from its evaluation.json."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        model, table = self.arguments
        file = bundled(model) / "evaluation.json"
        self.env.note_dependency(str(file))
        found = tables(json.loads(file.read_text(encoding="utf-8")), ("en", "ja").index(self.language))
        return [generated(node) for node in self.parse_text_to_nodes(found[table])]


class Output(SphinxDirective):
    """```{output} NAME``` : what a command printed, which outputs/NAME.txt holds behind the line of the command."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        file = Path(self.env.srcdir) / "outputs" / f"{self.arguments[0]}.txt"
        self.env.note_dependency(str(file))
        if not file.is_file():
            raise self.error(f"there is no outputs/{file.name}")
        command, _, printed = file.read_text(encoding="utf-8").rstrip("\n").partition("\n")
        if not command.startswith("$ "):
            raise self.error(f"outputs/{file.name}: expected `$ ` and a command in line 1, got {command!r}")
        text = [nodes.inline("", command, classes=["command"]), nodes.Text(f"\n{printed}")]
        # a source that is not the text makes Sphinx leave the block as it is: no lexer knows what a program may print
        return [generated(nodes.literal_block(command, "", *text, classes=["output"]))]


def generated(node: nodes.Element) -> nodes.Element:
    """Mark a node so that translators see nothing of it, and return the node."""
    for element in node.findall(nodes.TextElement):
        if not isinstance(element, nodes.Inline):  # inline elements are translated with their paragraph
            element["translatable"] = False
    return node


def folded(title: nodes.rubric, *body: nodes.Node) -> nodes.Element:
    """Return the same nodes as sphinx-design's directive `dropdown`."""
    return create_component(
        "dropdown",
        children=[title, *body],
        has_title=True,
        opened=False,
        icon=None,
        chevron=None,
        container_classes=["sd-mb-3"],
        title_classes=[],
        body_classes=[],
    )


def code_block(listing: Listing) -> nodes.Element:
    """Return code with its file's name and with the line numbers of the file."""
    place = f"{listing.name}, class {listing.scope}" if listing.scope else listing.name
    code = nodes.literal_block("", listing.code.rstrip("\n"), linenos=True)
    code["language"] = "cpp" if is_native(listing.file) else "python"
    code["highlight_args"] = {"linenostart": listing.line}
    return nodes.container("", nodes.caption("", place), code, literal_block=True, classes=["literal-block-wrapper"])


def inline(text: str) -> list[nodes.Node]:
    """Parse text whose only markup is `code`: the stars of `h*D to (h+1)*D` stay."""
    parts = enumerate(text.split("`"))
    return [nodes.literal("", part) if number % 2 else nodes.Text(part) for number, part in parts if part]


def split_diagnosis(text: str) -> tuple[str, str]:
    """Split a diagnosis into what was done (the first sentence, shortened) and why it is wrong (the others)."""
    first, _, rest = re.sub(r"(?<=[^.]\.) |(?<=。)", "\n", text, count=1).partition("\n")
    what = re.sub(r"^This is what you get (\w)", lambda match: match[1].upper(), first)
    return what.replace("の結果です", "", 1).rstrip(".。"), rest


def _field(name: str, *body: nodes.Node) -> nodes.field:
    return nodes.field("", nodes.field_name("", name), nodes.field_body("", *body))


def _place(file: str, names: list[str]) -> list[nodes.Node]:
    parts: list[nodes.Node] = [nodes.literal("", file)]
    for number, name in enumerate(names):
        parts += [nodes.Text(", " if number else ": "), nodes.literal("", name)]
    return parts


def setup(app: Sphinx) -> dict[str, Any]:
    directives = {
        "task": TaskBox,
        "hints": Hints,
        "solution": Solution,
        "answer": Answer,
        "mistakes": Mistakes,
        "stuck": Stuck,
        "figures": Figures,
        "output": Output,
    }
    for name, directive in directives.items():
        app.add_directive(name, directive)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
