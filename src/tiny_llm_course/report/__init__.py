"""`tiny-llm report`: describes an unexplained failure, in a file that you can attach to an issue."""
