"""Grades submissions. The tests run in one process, and a submission's code in another, which never sees a score."""
