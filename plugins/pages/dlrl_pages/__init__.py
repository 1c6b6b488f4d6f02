"""`dlrl plan`; a plan in text, for a terminal, in SVG and in HTML; advice for a job that does not fit."""
