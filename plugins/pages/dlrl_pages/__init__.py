"""`dlrl plan`; a plan in text, for a terminal, as a picture in SVG, and as a page in HTML."""
