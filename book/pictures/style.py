"""The colours that all pictures of the book share."""

BLUE, ORANGE, GREEN, PINK, GREY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#888888"  # colour-blind-safe
PALE = "#bbbbbb"
STYLE = {"svg.hashsalt": "tiny-llm", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
