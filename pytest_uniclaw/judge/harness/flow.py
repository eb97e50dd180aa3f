"""The text of Word documents, slides and charts in the order in which a person reads it."""

from __future__ import annotations

from collections.abc import Iterator

from .office import Attributes, Parts, attribute, reference
from .places import shown

SKIPPED = frozenset({"Fallback", "delText", "instrText", "moveFrom"})
"""Elements whose text is not to be seen: a second form of a drawing, field codes, what a tracked change took away."""
BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
ASIDES = r"word/(?:header|footer|footnotes|endnotes|comments)\d*\.xml"


class Flow:
    """Reads paragraphs and tables; a table's row is one line, its cells separated by `` | ``.

    ``styles`` maps the ids of paragraph styles to their names: a heading's line begins with as many ``#`` as its level.
    """

    def __init__(self, styles: dict[str, str] | None = None) -> None:
        self.styles = styles or {}
        self.places: list[list[str]] = [[]]
        self.rows: list[list[str]] = []
        self.paragraphs: list[list[str]] = []
        self.prefix: list[str] = []
        self.skipping = 0
        self.reading = False
        self.hidden = False

    def take(self) -> str:
        """Return the lines that are complete, and forget them."""
        lines, self.places[0] = self.places[0], []
        return "".join(f"{line}\n" for line in lines)

    def start(self, name: str, attributes: Attributes) -> None:
        """Open a paragraph, a row or a cell, or note what is in one."""
        if self.skipping or name in SKIPPED:
            self.skipping += 1
        elif name == "p":
            self.paragraphs.append([])
            self.prefix.append("")
        elif name == "tr":
            self.rows.append([])
        elif name == "tc":
            self.places.append([])
        elif name == "t":
            self.reading = True
        elif name == "sld":
            self.hidden = attributes.get("show") in ("0", "false")
        elif self.paragraphs:
            self.inside(name, attributes)

    def inside(self, name: str, attributes: Attributes) -> None:
        """Note what a paragraph holds beside text."""
        if name in BREAKS and not self.in_properties(name, attributes):
            self.paragraphs[-1].append(BREAKS[name])
        elif name == "pStyle":
            self.prefix[-1] = heading(self.styles.get(attribute(attributes, "val"), ""))
        elif name == "numPr" and not self.prefix[-1]:
            self.prefix[-1] = "- "

    def in_properties(self, name: str, attributes: Attributes) -> bool:
        """Tell a tab stop in a paragraph's properties, which has a position, from a tab character."""
        return name == "tab" and bool(attribute(attributes, "pos"))

    def end(self, name: str) -> None:
        """Close what :meth:`start` opened."""
        if self.skipping:
            self.skipping -= 1
        elif name == "t":
            self.reading = False
        elif name == "p" and self.paragraphs:
            text, prefix = "".join(self.paragraphs.pop()).rstrip(), self.prefix.pop()
            if text:
                self.places[-1].append(prefix + text)
        elif name == "tc" and len(self.places) > 1:
            lines = self.places.pop()
            target = self.rows[-1] if self.rows else self.places[-1]
            target.append(" ".join(lines))
        elif name == "tr" and self.rows:
            self.places[-1].append(" | ".join(self.rows.pop()))

    def text(self, data: str) -> None:
        """Take characters of a text element."""
        if self.reading and not self.skipping and self.paragraphs:
            self.paragraphs[-1].append(data)


class Styles:
    """Reads the names of a Word document's styles."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.key = ""

    def start(self, name: str, attributes: Attributes) -> None:
        """Note a style and its name."""
        if name == "style":
            self.key = attribute(attributes, "styleId")
        elif name == "name" and self.key:
            self.names.setdefault(self.key, attribute(attributes, "val"))

    def end(self, name: str) -> None:
        """Leave a style."""
        if name == "style":
            self.key = ""

    def text(self, data: str) -> None:
        """There is no text."""


class Slides:
    """Reads the order of a presentation's slides."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def start(self, name: str, attributes: Attributes) -> None:
        """Note a slide."""
        if name == "sldId":
            self.keys.append(reference(attributes))

    def end(self, name: str) -> None:
        """Nothing ends here."""

    def text(self, data: str) -> None:
        """There is no text."""


class Chart:
    """Reads a chart: its kinds, its texts, and per series its references and cached values."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.titles: list[str] = []
        self.series: list[list[str]] = []
        self.data: list[str] | None = None
        self.in_series = 0

    def start(self, name: str, attributes: Attributes) -> None:
        """Open a series or a value."""
        if name == "ser":
            self.series.append([])
            self.in_series += 1
        elif name in ("t", "f", "v"):
            self.data = []
        elif name.endswith("Chart") and name not in self.kinds:
            self.kinds.append(name)

    def end(self, name: str) -> None:
        """Close what :meth:`start` opened."""
        if name == "ser" and self.in_series:
            self.in_series -= 1
        elif name in ("t", "f", "v") and self.data is not None:
            target = self.series[-1] if self.in_series else self.titles
            target.append("".join(self.data))
            self.data = None

    def text(self, data: str) -> None:
        """Take characters of a title, a reference or a value."""
        if self.data is not None:
            self.data.append(data)


def heading(style: str) -> str:
    """Return what a heading's line begins with, by the name of its style."""
    word, _, level = style.lower().rpartition(" ")
    if word == "heading" and level in "123456789":
        return "#" * int(level) + " "
    return "# " if style.lower() == "title" else ""


def word_text(parts: Parts, main: str) -> Iterator[str]:
    """Yield the text of a Word document, and then of its headers, footers, notes and comments."""
    styles = Styles()
    if "word/styles.xml" in parts.names:
        parts.parse("word/styles.xml", styles)
    yield from flowing(parts, main, styles.names)
    for name in parts.matching(ASIDES):
        text = "".join(flowing(parts, name, styles.names))
        if text.strip():
            yield f"[{name.removeprefix('word/').removesuffix('.xml')}]\n{text}"


def flowing(parts: Parts, name: str, styles: dict[str, str] | None = None) -> Iterator[str]:
    """Yield the text of one part."""
    flow = Flow(styles)
    for _ in parts.stream(name, flow):
        yield flow.take()


def slides_text(parts: Parts, main: str) -> Iterator[str]:
    """Yield the text of a presentation slide by slide, each with its notes and the charts it shows."""
    order = Slides()
    parts.parse(main, order)
    targets = {relation.key: relation.target for relation in parts.related(main)}
    for number, key in enumerate(order.keys, 1):
        name = targets.get(key, "")
        flow = Flow()
        parts.parse(name, flow)
        yield f"[slide {number}{', hidden' if flow.hidden else ''}]\n{flow.take()}"
        yield from beside(parts, name, number)


def beside(parts: Parts, slide: str, number: int) -> Iterator[str]:
    """Yield what belongs to a slide and stands in parts of its own."""
    for relation in parts.related(slide):
        if relation.kind == "notesSlide":
            yield f"[notes of slide {number}]\n" + "".join(flowing(parts, relation.target))
        elif relation.kind == "diagramData":
            yield "[diagram]\n" + "".join(flowing(parts, relation.target))
        elif relation.kind in ("chart", "image"):
            yield f"[{relation.kind} {shown(relation.target)}]\n"


def chart_lines(parts: Parts, name: str) -> list[str]:
    """Return a chart as lines: what kind it is, its titles, one line per series."""
    chart = Chart()
    parts.parse(name, chart)
    series = [f"series: {' | '.join(values)}" for values in chart.series]
    return [f"kind: {', '.join(chart.kinds) or 'unknown'}", *(f"title: {text}" for text in chart.titles), *series]
