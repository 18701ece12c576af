"""Explains a failed test: names the mistake of the catalogue, advises on an error, looks again at a kernel."""
