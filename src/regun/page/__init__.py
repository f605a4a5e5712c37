"""HTML pages that hold everything they need, and the figures in them."""
