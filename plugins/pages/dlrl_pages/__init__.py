"""A plan as a picture in SVG, and as a page in HTML."""
