"""Grades submissions. The tests run in one process. A submission's code runs in another process, which never sees a
score."""
