"""A loaded model of the package under test: the tasks that it needs, its options, and the protocols of its parts."""
