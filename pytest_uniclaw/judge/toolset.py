"""The tools that a role's model may use in its workspace, as OpenAI tool definitions.

What they do is in :mod:`pytest_uniclaw.judge.harness.toolbox`. ``find_quotes`` is not among them: it is for code, which
verifies with it what a model quotes.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_PATH = {"type": "string", "description": "Relative to the workspace, as list_files gives it."}
_OFFSET = {"type": "integer", "minimum": 0, "description": "Where to go on, as an earlier answer said (default 0)."}
_COUNT = {"type": "integer", "minimum": 1}


def _tool(name: str, description: str, required: tuple[str, ...] = (), **properties: Json) -> Json:
    parameters = {
        "type": "object", "properties": properties, "required": list(required), "additionalProperties": False,
    }  # fmt: skip
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS: tuple[Json, ...] = (
    _tool(
        "list_files",
        "List files and folders with their sizes, 500 entries at a time.",
        path={**_PATH, "description": "A folder (default: the whole workspace)."},
        depth={**_COUNT, "description": "How many levels of folders to list (default 3)."},
        offset=_OFFSET,
    ),
    _tool(
        "read_file",
        "Read a file as text, a page at a time; the answer says how long the file is and where to go on. Word, "
        "PowerPoint, Excel and PDF files are given as text with heads such as [slide 2], [sheet Costs], [page 3]. "
        "Quotes are verified in exactly this text.",
        ("path",),
        path=_PATH,
        offset={**_OFFSET, "description": "The first character to give (default 0)."},
        limit={**_COUNT, "maximum": 32768, "description": "Most characters to give (default 16384)."},
    ),
    _tool(
        "search",
        "Find a regular expression (Python's re, one line at a time; (?i) ignores case) in a file or in all files of a "
        "folder, documents included. Gives file:line: text, 100 matches at a time.",
        ("pattern",),
        pattern={"type": "string", "description": "The regular expression."},
        path={**_PATH, "description": "A file or a folder (default: the whole workspace)."},
        offset=_OFFSET,
    ),
    _tool(
        "view_image",
        "Look at a picture, a page of a PDF, or a picture inside a Word, PowerPoint or Excel file. It is scaled down "
        "to at most 1568 pixels; use box to see a part in full detail.",
        ("path",),
        path=_PATH,
        page={**_COUNT, "description": "Page of a PDF, frame of an animation, picture of a document (default 1)."},
        box={
            "type": "array",
            "items": {"type": "number", "minimum": 0, "maximum": 1},
            "minItems": 4,
            "maxItems": 4,
            "description": "The part to show: left, top, right, bottom, as fractions of width and height.",
        },
    ),
    _tool(
        "read_table",
        "Read rows of an Excel sheet or of a CSV or TSV file. Excel cells give their value and, in brackets, their "
        "formula.",
        ("path",),
        path=_PATH,
        sheet={"type": "string", "description": "Name or number of the sheet (default: the first)."},
        first_row={**_COUNT, "description": "The first row to give (default 1)."},
        rows={**_COUNT, "maximum": 1000, "description": "Most rows to give (default 100)."},
    ),
    _tool(
        "query_database",
        "Run one SQL statement that only reads on an SQLite file; 200 rows at a time. The tables are in sqlite_master.",
        ("path", "sql"),
        path=_PATH,
        sql={"type": "string", "description": "A SELECT, or a PRAGMA that only reads, such as table_info."},
        offset={**_OFFSET, "description": "The first row of the result to give (default 0)."},
    ),
    _tool(
        "media_info",
        "Tell format, duration, streams and tags of an audio or video file.",
        ("path",),
        path=_PATH,
    ),
    _tool(
        "media_frame",
        "Look at the picture of a video at a time.",
        ("path", "seconds"),
        path=_PATH,
        seconds={"type": "number", "minimum": 0, "description": "Seconds from the start."},
    ),
)

__all__ = ["TOOLS"]
