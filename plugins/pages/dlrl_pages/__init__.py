"""A plan in text, for a terminal, in SVG, HTML and JSON; advice for a job that does not fit."""
