"""The tasks: the syllabus, and the code of a task in a source file. Nothing here knows a learner's clone."""
