"""The few SVG elements that a picture needs, as text. Lengths are whole pixels, so that output never varies."""

from __future__ import annotations

import html
import re

CHAR = 7
"""Room for one character of a label; labels have a font of constant width."""
INK = "#1f2933"
FAINT = "#52606d"

_NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(text: str) -> str:
    """Text as XML and HTML can hold it, between tags and in attributes."""
    return html.escape(_NOT_IN_XML.sub("?", text))


def width_of(text: str) -> int:
    return len(text) * CHAR


def label(x: int, y: int, text: str, *, fill: str = INK, is_bold: bool = False, is_at_end: bool = False) -> str:
    """Text that starts at x, or ends there; y is its base line."""
    bold = ' font-weight="bold"' if is_bold else ""
    end = ' text-anchor="end"' if is_at_end else ""
    return f'<text x="{x}" y="{y}" fill="{fill}"{bold}{end}>{clean(text)}</text>'


def box(
    x: int, y: int, width: int, height: int, *, fill: str = "none", stroke: str = "none", is_dashed: bool = False
) -> str:
    dashes = ' stroke-dasharray="6 4"' if is_dashed else ""
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}" stroke="{stroke}"{dashes}/>'


def group(kind: str, *content: str, title: str | None = None, **data: object) -> str:
    """A group with a tooltip; `data` becomes data-... attributes, for programs that read the picture."""
    attributes = "".join(f' data-{name}="{clean(str(value))}"' for name, value in data.items())
    tooltip = "" if title is None else f"<title>{clean(title)}</title>"
    return f'<g class="{kind}"{attributes}>{tooltip}{"".join(content)}</g>'


def document(width: int, height: int, title: str, *content: str) -> str:
    """A whole picture on a light ground."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" font-size="11" '
            "font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\">",
            f"<title>{clean(title)}</title>",
            box(0, 0, width, height, fill="#ffffff"),
            *content,
            "</svg>",
            "",
        ]
    )
