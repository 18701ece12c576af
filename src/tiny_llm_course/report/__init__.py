"""`tiny-llm report`: a failure that nothing explains, written down for an issue."""
