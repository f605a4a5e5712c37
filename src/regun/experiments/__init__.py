"""Experiments: searches of settings (`search`), studies of many runs (`study`), and tables and reports (`report`)."""
