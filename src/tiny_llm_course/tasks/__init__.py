"""The tasks: the syllabus, and the code of a task in a source file. This package knows nothing of a learner's clone."""
