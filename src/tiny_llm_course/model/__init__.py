"""A loaded model of the package under test: what it needs, its options, and the protocols of its parts."""
