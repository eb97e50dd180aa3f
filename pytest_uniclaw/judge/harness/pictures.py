"""``view_image``: a picture, a page of a PDF, or a picture inside a document, scaled to what a model can see."""

from __future__ import annotations

import base64
import contextlib
import io
import re
import warnings
from collections.abc import Iterator
from typing import Any, BinaryIO

from .common import MIB, Answer, Arguments, ToolError, need
from .office import Parts, pictures_of
from .places import Found, Root
from .programs import run_program
from .texts import sized

SIDE = 1568
"""Longest side of what is shown, in pixels."""
PDF_SIDE = 6272
"""Longest side at which a page is drawn when a part of it is asked for."""
PIXELS = 64 * MIB
PNG_BYTES = 2 * MIB
"""A larger PNG is sent as JPEG."""
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "ICO", "PPM")
Box = tuple[float, float, float, float]
WHOLE: Box = (0.0, 0.0, 1.0, 1.0)


def view_image(root: Root, arguments: Arguments) -> Answer:
    """Show a picture; ``box`` cuts out left, top, right, bottom as fractions of its width and height."""
    found = root.file(arguments.text("path"))
    number = arguments.whole("page", 1, 1, 1_000_000)
    box = box_of(arguments.values.get("box"))
    head = found.head(1024)
    if b"%PDF-" in head:
        return of_pdf(sized(found), number, box)
    if head.startswith(b"PK\x03\x04"):
        parts = Parts(sized(found))
        names = pictures_of(parts)
        if number > len(names):
            raise ToolError(f"{found.name}: holds {len(names)} pictures; page is the number of one of them")
        return of_picture(io.BytesIO(parts.read(names[number - 1])), f"{found.name}: {names[number - 1]}", 1, box)
    with found.open() as file:
        return of_picture(file, found.name, number, box)


def box_of(value: Any) -> Box:
    """Return the part that is asked for. Raises ToolError."""
    if value is None:
        return WHOLE
    wrong = ToolError("box must be four numbers from 0 to 1: left, top, right, bottom, with left < right, top < bottom")
    try:
        left, top, right, bottom = (float(side) for side in value)
    except (TypeError, ValueError):
        raise wrong from None
    if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
        raise wrong
    return left, top, right, bottom


def of_picture(file: BinaryIO, name: str, page: int, box: Box) -> Answer:
    """Show a picture file."""
    with reading(name) as library:
        picture = library.open(file, formats=FORMATS)
        frames = getattr(picture, "n_frames", 1)
        if page > frames:
            raise ToolError(f"{name}: has {frames} page{'s' * (frames != 1)}")
        check_pixels(picture.size, name)
        kind = picture.format
        picture.seek(page - 1)
        picture = need("PIL.ImageOps", "Pillow").exif_transpose(picture)
        label = f"{name}: {kind}, {picture.width} x {picture.height} pixels"
        return show(picture, f"{label}, page {page} of {frames}" if frames > 1 else label, box)


def of_pdf(found: Found, page: int, box: Box) -> Answer:
    """Draw a page of a PDF and show it."""
    said = b"".join(run_program(["pdfinfo", str(found.path)], "read a PDF")).decode("utf-8", "replace")
    match = re.search(r"^Pages:\s+(\d+)", said, re.MULTILINE)
    pages = int(match[1]) if match else 0
    if page > pages:
        raise ToolError(f"{found.name}: has {pages} page{'s' * (pages != 1)}")
    side = min(round(SIDE / min(box[2] - box[0], box[3] - box[1])), PDF_SIDE)
    options = ["-f", str(page), "-l", str(page), "-scale-to", str(side), "-png", str(found.path)]
    data = b"".join(run_program(["pdftoppm", *options], "draw a PDF's page"))
    with reading(found.name) as library:
        return show(library.open(io.BytesIO(data), formats=("PNG",)), f"{found.name}: PDF, page {page} of {pages}", box)


@contextlib.contextmanager
def reading(name: str) -> Iterator[Any]:
    """Yield the picture library; whatever it raises on a file becomes a ToolError."""
    library = need("PIL.Image", "Pillow")
    library.MAX_IMAGE_PIXELS = PIXELS
    warnings.simplefilter("ignore")
    try:
        yield library
    except library.UnidentifiedImageError:
        raise ToolError(f"{name}: is no picture that can be shown ({', '.join(FORMATS)})") from None
    except library.DecompressionBombError:
        raise ToolError(f"{name}: has too many pixels to be shown") from None
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise ToolError(f"{name}: is damaged: {str(error)[:200] or type(error).__name__}") from None


def check_pixels(size: tuple[int, int], name: str) -> None:
    """Refuse a picture that is too large before it is unpacked. Raises ToolError."""
    if size[0] * size[1] > PIXELS:
        raise ToolError(f"{name}: {size[0]} x {size[1]} pixels are too many to be shown")


def show(picture: Any, label: str, box: Box) -> Answer:
    """Cut, scale and encode a picture."""
    width, height = picture.size
    left, top, right, bottom = (round(side * full) for side, full in zip(box, (width, height) * 2, strict=True))
    if box != WHOLE:
        picture = picture.crop((left, top, max(right, left + 1), max(bottom, top + 1)))
    transparent = picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info
    mode = "RGBA" if transparent else "L" if picture.mode in ("1", "L") else "RGB"
    if picture.mode != mode:
        picture = picture.convert(mode)
    picture.thumbnail((SIDE, SIDE))
    part = "" if box == WHOLE else f", part {', '.join(f'{side:g}' for side in box)}"
    text = f"[{label}{part}; shown as {picture.width} x {picture.height}]"
    return Answer(text, images=[encoded(picture)])


def encoded(picture: Any) -> dict[str, str]:
    """Return a picture as PNG, or as JPEG where that would be large; transparency becomes white there."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    if buffer.tell() <= PNG_BYTES:
        return image("image/png", buffer.getvalue())
    if picture.mode == "RGBA":
        ground = need("PIL.Image", "Pillow").new("RGB", picture.size, "white")
        ground.paste(picture, mask=picture.getchannel("A"))
        picture = ground
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=85)
    return image("image/jpeg", buffer.getvalue())


def image(mime: str, data: bytes) -> dict[str, str]:
    """Return an image as it stands in an answer."""
    return {"mime": mime, "data": base64.b64encode(data).decode("ascii")}
