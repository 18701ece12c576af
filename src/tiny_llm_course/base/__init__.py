"""The parts that every command uses: the course's folders and packages, arguments, errors, and atomic file writes."""
