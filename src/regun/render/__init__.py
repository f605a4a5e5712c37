"""Numbers as text, tables, HTML pages and figures: how results are shown, whatever they are."""
