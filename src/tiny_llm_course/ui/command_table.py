"""The names of the commands, the module of each command, and where the command can run.

This file only names the modules: commands.py imports a module when its command is called or listed.
"""

from __future__ import annotations

__all__ = ["ALL", "ANYWHERE", "FOR_INSTRUCTORS", "FOR_LEARNERS", "FOR_MAINTAINERS", "NEED_SOLUTIONS", "SHORT"]

FOR_LEARNERS = {  # module:function
    "next": "learner.progress_commands:next_task",
    "test": "testing.test_command:run",
    "watch": "testing.watch_command:watch",
    "hint": "learner.progress_commands:hint",
    "progress": "learner.progress_commands:progress",
    "solution": "learner.solution_commands:solution",
    "reset": "learner.solution_commands:reset",
    "undo": "learner.solution_commands:undo",
    "update": "update.update_command:update",
    "doctor": "setup.doctor:doctor",
    "report": "report.report_command:report",
    "install": "setup.install:install",
    "main": "generation.text_commands:main",
    "chat": "generation.text_commands:chat",
    "batch": "serve.batch_command:batch",
    "serve": "serve.serve_command:serve",
    "build-ext": "setup.build_command:build_ext",
    "bench": "bench.bench_command:bench",
    "roofline": "bench.roofline:roofline",
    "trace": "viz.trace:trace",
    "viz": "viz.viz_commands:app",
}
FOR_INSTRUCTORS = {
    "grade": "grading.grade_commands:grade",
    "grade-report": "grading.grade_commands:grade_report",
    "export": "grading.export:export",
}
SHORT = {  # name -> the words that the name replaces
    "test-ref": ["test", "--impl", "ref"],
    "bench-ref": ["bench", "--impl", "ref"],
    "build-ext-ref": ["build-ext", "--impl", "ref"],
}
FOR_MAINTAINERS = {  # the script, and the key of `extras.WHAT` for the packages that the script needs
    "stubs": ("scripts/stubs.py", None),
    "book": ("scripts/book.py", "book"),
    "check": ("scripts/check", "all"),
}
ANYWHERE = {  # commands that also work without a clone, in an environment where the wheel is installed
    *("doctor", "install", "main", "chat", "batch", "serve", "trace", "viz", "grade-report"),
    *("build-ext", "build-ext-ref", "bench", "bench-ref", "roofline"),
}
ALL = [*FOR_LEARNERS, *SHORT, *FOR_INSTRUCTORS, *FOR_MAINTAINERS]
NEED_SOLUTIONS = {  # commands that a copy without solutions does not have
    *FOR_INSTRUCTORS,
    *FOR_MAINTAINERS,
    *(name for name, words in SHORT.items() if "ref" in words),
}
