"""Finished results as text, pages and figures; nothing is computed here that a result does not hold."""
