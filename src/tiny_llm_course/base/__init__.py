"""The ground floor of every command: where the course is, its packages, arguments, errors, and files written whole."""
