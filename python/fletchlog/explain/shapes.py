"""Rectangles and lines of text, and how they become SVG and PNG."""

from __future__ import annotations

import html
import io
from dataclasses import dataclass, field
from typing import Any

# one accent per partition, distinct with any kind of colour vision, each readable under white text
ACCENTS = ("#0069a8", "#c24a06", "#007a5b", "#a3417f", "#846400", "#5a55c9")
INK, QUIET, LINE, SOFT, PAPER = "#1d2126", "#5a626b", "#dfe2e5", "#eff1f2", "#ffffff"
# what a viewer that prefers dark pages shows instead; text on a bar is dark there
DARK_ACCENTS = ("#58b2ee", "#ff9850", "#43cf9f", "#ee8fc9", "#dcbd4c", "#a9a5ff")
DARK = dict(zip(ACCENTS, DARK_ACCENTS, strict=True)) | {INK: "#e8eaec", QUIET: "#a2aab3", LINE: "#343a41", SOFT: "#23282d", PAPER: "#1b1f23"}
ON_DARK = "#101316"
# of more partitions than there are accents: no stripe, one along the lower edge of each bar, the upper one, or both; narrow bars show it too
STRIPES: tuple[tuple[float, ...], ...] = ((), (0.74,), (0.0,), (0.0, 0.74))
STRIPE, STRIPE_OPACITY = 0.26, 0.7
WIDTH, LEFT = 1200.0, 24.0
# what a digit needs at one pixel of font size, to know whether a number fits into its bar
DIGIT = 0.62
FONT = "'Segoe UI', 'Helvetica Neue', Roboto, 'DejaVu Sans', sans-serif"


@dataclass(frozen=True)
class Bar:
    """A rectangle."""

    x: float
    y: float
    w: float
    h: float
    fill: str
    opacity: float = 1.0


def lane_bars(number: int, x: float, y: float, w: float, h: float) -> list[Bar]:
    """A bar of the partition with this number, from 0. As many partitions as `ACCENTS` times `STRIPES` look different."""
    stripes = STRIPES[number // len(ACCENTS) % len(STRIPES)]
    return [Bar(x, y, w, h, ACCENTS[number % len(ACCENTS)]), *(Bar(x, y + h * top, w, h * STRIPE, INK, STRIPE_OPACITY) for top in stripes)]


@dataclass(frozen=True)
class Text:
    """A line of text; `anchor` is start, middle or end, `y` its middle."""

    x: float
    y: float
    text: str
    size: float
    fill: str = INK
    anchor: str = "start"
    bold: bool = False


@dataclass
class Drawing:
    """Shapes from back to front."""

    height: float = 0.0
    shapes: list[Bar | Text] = field(default_factory=list)
    headline: str = ""


def to_svg(drawing: Drawing, *, dark: bool = True) -> str:
    """As SVG text. The same drawing gives the same bytes.

    Args:
        drawing: What to draw.
        dark: Light or dark as its viewer prefers; else light, for a page that may be neither.
    """
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {drawing.height:g}" width="{WIDTH:g}" height="{drawing.height:g}" '
        f'role="img" class="fletchlog" font-family="{FONT}" style="max-width:100%;height:auto"><title>{html.escape(drawing.headline)}</title>'
        f"{_dark_style() if dark else ''}"
        f'<rect width="100%" height="100%" fill="{PAPER}"/>'
    )
    parts = [head]
    for shape in drawing.shapes:
        if isinstance(shape, Bar):
            faint = f' fill-opacity="{shape.opacity:g}"' if shape.opacity < 1 else ""
            parts.append(f'<rect x="{shape.x:.2f}" y="{shape.y:.2f}" width="{shape.w:.2f}" height="{shape.h:.2f}" fill="{shape.fill}"{faint}/>')
        else:
            anchor = f' text-anchor="{shape.anchor}"' if shape.anchor != "start" else ""
            weight = ' font-weight="600"' if shape.bold else ""
            parts.append(
                f'<text x="{shape.x:.2f}" y="{shape.y + 0.35 * shape.size:.2f}" font-size="{shape.size:g}" fill="{shape.fill}"{anchor}{weight}>'
                f"{html.escape(shape.text)}</text>"
            )
    return "\n".join([*parts, "</svg>\n"])


def _dark_style() -> str:
    rules = [f'.fletchlog [fill="{light}"]{{fill:{dark}}}' for light, dark in DARK.items()]
    return f'<style>@media (prefers-color-scheme:dark){{{"".join(rules)}.fletchlog text[fill="{PAPER}"]{{fill:{ON_DARK}}}}}</style>'


def to_png(drawing: Drawing, scale: int = 2) -> bytes:
    """As a PNG of `scale` times the size. The same drawing gives the same bytes.

    Raises:
        ModuleNotFoundError: matplotlib is missing.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import PatchCollection
    from matplotlib.colors import to_rgba
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    figure = Figure(figsize=(WIDTH / 72, drawing.height / 72), dpi=72 * scale, facecolor=PAPER)
    FigureCanvasAgg(figure)
    axes: Any = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, WIDTH)
    axes.set_ylim(drawing.height, 0)
    axes.axis("off")
    bars = [shape for shape in drawing.shapes if isinstance(shape, Bar)]
    patches = [Rectangle((bar.x, bar.y), bar.w, bar.h) for bar in bars]
    axes.add_collection(PatchCollection(patches, facecolors=[to_rgba(bar.fill, bar.opacity) for bar in bars], linewidths=0, antialiaseds=True))
    place = {"start": "left", "middle": "center", "end": "right"}
    for text in drawing.shapes:
        if isinstance(text, Text):
            said = axes.text(text.x, text.y, text.text, color=text.fill, ha=place[text.anchor], va="center_baseline", parse_math=False)
            # a point is a pixel of the drawing here
            said.set(fontsize=text.size * 0.93, weight="bold" if text.bold else "normal")
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()
