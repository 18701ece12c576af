"""Explains a failed test: names a mistake from the catalogue, gives advice on an error, or checks a kernel again."""
