"""`tiny-llm report`: describes a failure that nothing explains, for an issue."""
