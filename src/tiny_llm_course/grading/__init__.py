"""Grades submissions. The tests run in one process, a submission's code in another, which never sees a score."""
