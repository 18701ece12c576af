"""What the book's pictures have in common."""

BLUE, ORANGE, GREEN, PINK, GREY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#888888"  # for the colour-blind, too
PALE = "#bbbbbb"
STYLE = {"svg.hashsalt": "tiny-llm", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
