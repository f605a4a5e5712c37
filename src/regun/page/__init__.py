"""HTML pages that hold everything they need, and the figures in them.

Belongs here: the files of this room; nothing in this one. May import: nothing.
"""
