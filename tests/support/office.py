"""Office files made of their XML, so that tests need none of the libraries that write them."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
S = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
C = "http://schemas.openxmlformats.org/drawingml/2006/chart"
MC = "http://schemas.openxmlformats.org/markup-compatibility/2006"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
RELS = "http://schemas.openxmlformats.org/package/2006/relationships"
NAMES = f'xmlns:w="{W}" xmlns:a="{A}" xmlns:p="{P}" xmlns:r="{R}" xmlns:c="{C}" xmlns:mc="{MC}"'


def write_zip(path: Path, parts: Mapping[str, str | bytes]) -> Path:
    """Write an archive of the parts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def relations(**targets: tuple[str, str]) -> str:
    """Return a relationships part: id = (last word of the type, target)."""
    rows = "".join(f'<Relationship Id="{k}" Type="{R}/{kind}" Target="{to}"/>' for k, (kind, to) in targets.items())
    return f'<Relationships xmlns="{RELS}">{rows}</Relationships>'


def root(main: str) -> dict[str, str]:
    """Return the part that names the main one."""
    return {"_rels/.rels": relations(rId1=("officeDocument", main))}


def word(path: Path, body: str, **parts: str | bytes) -> Path:
    """Write a Word document; ``parts`` are files of its folder, ``__`` for ``/`` and ``_`` for ``.``."""
    more = {f"word/{name.replace('__', '/').replace('_', '.')}": text for name, text in parts.items()}
    main = {"word/document.xml": f"<w:document {NAMES}><w:body>{body}</w:body></w:document>"}
    return write_zip(path, {**root("word/document.xml"), **main, **more})


def paragraph(text: str, style: str = "") -> str:
    """Return a paragraph of a Word document."""
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"


def slides(path: Path, shapes: list[str], *, relate: str = "", parts: Mapping[str, str | bytes] | None = None) -> Path:
    """Write a presentation, one slide for each text of shapes; ``relate`` is the first slide's relationships."""
    count = range(1, len(shapes) + 1)
    ids = "".join(f'<p:sldId id="{255 + n}" r:id="rId{n}"/>' for n in count)
    return write_zip(
        path,
        {
            **root("ppt/presentation.xml"),
            "ppt/presentation.xml": f"<p:presentation {NAMES}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
            "ppt/_rels/presentation.xml.rels": relations(
                **{f"rId{n}": ("slide", f"slides/slide{n}.xml") for n in count}
            ),
            **{f"ppt/slides/slide{n}.xml": f"<p:sld {NAMES}>{text}</p:sld>" for n, text in enumerate(shapes, 1)},
            **({"ppt/slides/_rels/slide1.xml.rels": relate} if relate else {}),
            **(parts or {}),
        },
    )


def workbook(
    path: Path,
    sheets: Mapping[str, str],
    strings: tuple[str, ...] = (),
    styles: str = "",
    parts: Mapping[str, str | bytes] | None = None,
) -> Path:
    """Write a workbook: name of a sheet -> the XML of its rows."""
    listed = "".join(f'<sheet name="{n}" sheetId="{i}" r:id="rId{i}"/>' for i, n in enumerate(sheets, 1))
    related = {f"rId{i}": ("worksheet", f"worksheets/sheet{i}.xml") for i in range(1, len(sheets) + 1)}
    related |= {"rId90": ("sharedStrings", "sharedStrings.xml"), "rId91": ("styles", "styles.xml")}
    return write_zip(
        path,
        {
            **root("xl/workbook.xml"),
            "xl/workbook.xml": f'<workbook xmlns="{S}" xmlns:r="{R}"><sheets>{listed}</sheets></workbook>',
            "xl/_rels/workbook.xml.rels": relations(**related),
            "xl/sharedStrings.xml": f'<sst xmlns="{S}">{"".join(f"<si><t>{text}</t></si>" for text in strings)}</sst>',
            "xl/styles.xml": f'<styleSheet xmlns="{S}">{styles}</styleSheet>',
            **{
                f"xl/worksheets/sheet{i}.xml": f'<worksheet xmlns="{S}"><sheetData>{rows}</sheetData></worksheet>'
                for i, rows in enumerate(sheets.values(), 1)
            },
            **(parts or {}),
        },
    )
