"""The roles' tools on documents, tables and databases: right values, and no harm from hostile ones."""

from __future__ import annotations

import io
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from support.office import NAMES, A, C, S, W, paragraph, relations, slides, word, workbook, write_zip
from support.office import root as package_root
from support.tools import ask, error_of, text_of

pytestmark = pytest.mark.processes

MIB = 1024 * 1024


def body(root: Path, name: str) -> list[str]:
    return text_of(root, "read_file", path=name, limit=32768).splitlines()[1:]


def cell(text: str) -> str:
    return f"<w:tc>{paragraph(text)}</w:tc>"


def test_a_word_document_is_read_in_order(tmp_path: Path) -> None:
    styles = '<w:style w:styleId="2"><w:name w:val="heading 2"/></w:style>'
    table = f"<w:tbl><w:tr>{cell('Item')}{cell('Cost')}</w:tr><w:tr>{cell('Tea')}{cell('4 €')}</w:tr></w:tbl>"
    nested = f"<w:tbl><w:tr><w:tc>{table}{paragraph('below')}</w:tc></w:tr></w:tbl>"
    box = "<mc:AlternateContent><mc:Choice>{0}</mc:Choice><mc:Fallback>{0}</mc:Fallback></mc:AlternateContent>"
    changed = (
        "<w:p><w:r><w:t>now</w:t><w:tab/><w:t>here</w:t></w:r><w:del><w:r><w:delText>gone</w:delText></w:r></w:del>"
        "<w:moveFrom><w:r><w:t>moved</w:t></w:r></w:moveFrom><w:r><w:instrText>PAGE</w:instrText></w:r></w:p>"
    )
    listed = "<w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>point</w:t></w:r></w:p>"
    word(
        tmp_path / "a.docx",
        paragraph("Report", "2") + paragraph("First.") + table + nested + changed + listed
        + f"<w:p><w:r>{box.format(paragraph('boxed'))}</w:r></w:p>",
        styles_xml=f'<w:styles xmlns:w="{W}">{styles}</w:styles>',
        footnotes_xml=f"<w:footnotes {NAMES}>{paragraph('a note')}</w:footnotes>",
        header1_xml=f"<w:hdr {NAMES}>{paragraph('')}</w:hdr>",
        media__image1_png=b"\x89PNG",
    )  # fmt: skip
    assert body(tmp_path, "a.docx") == [
        "## Report", "First.", "Item | Cost", "Tea | 4 €", "Item | Cost Tea | 4 € below", "now\there", "- point",
        "boxed", "[footnotes]", "a note", "[picture 1: word/media/image1.png; view_image shows it as page=1]",
    ]  # fmt: skip
    assert text_of(tmp_path, "read_file", path="a.docx").startswith("[a.docx: Word document, ")
    found = ask(tmp_path, "find_quotes", quotes=[
        {"path": "a.docx", "text": "Tea | 4 €"}, {"path": "a.docx", "text": "gone"},
    ])["found"]  # fmt: skip
    assert found == [True, False]


def test_slides_are_read_in_the_presentation_s_order(tmp_path: Path) -> None:
    def text(words: str) -> str:
        return f"<a:p><a:r><a:t>{words}</a:t></a:r></a:p>"

    table = f"<a:tbl><a:tr><a:tc>{text('x')}</a:tc><a:tc>{text('y')}</a:tc></a:tr></a:tbl>"
    values = "<c:pt><c:v>1</c:v></c:pt><c:pt><c:v>2</c:v></c:pt>"
    series = f"<c:ser><c:tx><c:f>S!B1</c:f></c:tx><c:val>{values}</c:val></c:ser>"
    slides(
        tmp_path / "a.pptx", [text("One") + table, text("Two")],
        relate=relations(rId1=("notesSlide", "../notesSlides/n.xml"), rId2=("chart", "../charts/chart1.xml")),
        parts={
            "ppt/notesSlides/n.xml": f'<notes xmlns:a="{A}">{text("say this")}</notes>',
            "ppt/charts/chart1.xml": f'<c:chart xmlns:c="{C}" xmlns:a="{A}"><c:title>{text("Sales")}</c:title>'
            f"<c:barChart>{series}</c:barChart></c:chart>",
        },
    )  # fmt: skip
    assert body(tmp_path, "a.pptx") == [
        "[slide 1]", "One", "x | y", "[notes of slide 1]", "say this", "[chart ppt/charts/chart1.xml]", "[slide 2]",
        "Two", "[chart ppt/charts/chart1.xml]", "kind: barChart", "title: Sales", "series: S!B1 | 1 | 2",
    ]  # fmt: skip


def sample_workbook(path: Path) -> None:
    styles = (
        '<numFmts><numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd hh:mm"/><numFmt numFmtId="165" '
        'formatCode="[h]:mm"/><numFmt numFmtId="166" formatCode="0.0&quot; days&quot;"/></numFmts>'
        '<cellStyleXfs><xf numFmtId="14"/></cellStyleXfs>'
        + "<cellXfs>"
        + "".join(f'<xf numFmtId="{n}"/>' for n in (0, 14, 164, 165, 166, 21))
        + "</cellXfs>"
    )
    rows = (
        '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="C1" t="s"><v>1</v></c></row>'
        '<row r="3"><c r="A3" s="1"><v>45292</v></c><c r="B3" s="2"><v>45292.5</v></c><c r="C3" s="3"><v>1.5</v></c>'
        '<c r="D3" s="4"><v>2</v></c><c r="E3" s="5"><v>0.25</v></c></row>'
        '<row r="4"><c r="A4"><f>SUM(B4:C4)</f><v>0.30000000000000004</v></c><c r="B4"><v>0.1</v></c>'
        '<c r="C4" t="b"><v>1</v></c><c r="D4" t="e"><v>#DIV/0!</v></c>'
        '<c r="E4" t="inlineStr"><is><t>in line</t></is></c>'
        '<c r="F4" t="str"><f t="shared" si="0"/><v>a\nb</v></c></row>'
    )
    hidden = '<row><c><v>1234567</v></c><c r="ZZ1"><v>1</v></c></row><row/>'
    workbook(path, {"Costs": rows, "表": hidden}, ("Name", "total &amp; more"), styles)


def test_a_workbook_gives_values_dates_and_formulas(tmp_path: Path) -> None:
    sample_workbook(tmp_path / "a.xlsx")
    rows = [
        "1: Name |  | total & more", "3: 2024-01-01 | 2024-01-01 12:00:00 | 1.5 | 2 | 06:00:00",
        "4: 0.30000000000000004 (=SUM(B4:C4)) | 0.1 | TRUE | #DIV/0! | in line | a b (=shared formula)",
    ]  # fmt: skip
    assert body(tmp_path, "a.xlsx") == ["[sheet Costs]", *rows, "[sheet 表]", "1: 1234567 | [1 more cells]"]
    assert text_of(tmp_path, "read_table", path="a.xlsx").splitlines() == [
        "[a.xlsx: sheet 'Costs' of: Costs, 表, rows 1 to 4]", *rows,
    ]  # fmt: skip
    page = ask(tmp_path, "read_table", path="a.xlsx", first_row=2, rows=1)
    assert page["next_offset"] == 4
    assert page["text"].splitlines()[1:] == [rows[1], "[cut here: go on with first_row=4]"]
    for name in ("表", "2", 2):
        assert text_of(tmp_path, "read_table", path="a.xlsx", sheet=name).endswith("\n1: 1234567 | [1 more cells]")
    assert "its sheets are Costs, 表" in error_of(tmp_path, "read_table", path="a.xlsx", sheet="3")


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("a.csv", 'a,b\n1,"x, y"\n\n2,"two\nlines"\n', ["1: a | b", "2: 1 | x, y", "3: ", "4: 2 | two lines"]),
        ("a.tsv", "a\tb,c\n1\t2\n", ["1: a | b,c", "2: 1 | 2"]),
        ("a.txt", "a;b;c\r\n1;2,5;3\r\n", ["1: a | b | c", "2: 1 | 2,5 | 3"]),
        ("b.csv", "x," * 257 + "x\n", ["1: " + "x | " * 256 + "[2 more cells]"]),
        ("c.csv", "x" * 2005 + ",b\n", ["1: " + "x" * 2000 + "…[5 more characters] | b"]),
    ],
)  # fmt: skip
def test_delimited_text_is_read_as_rows(tmp_path: Path, name: str, content: str, rows: list[str]) -> None:
    (tmp_path / name).write_bytes(content.encode())
    assert text_of(tmp_path, "read_table", path=name).splitlines()[1:] == rows


def test_a_long_table_comes_in_pages(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("".join(f"{number},{'x' * 150}\n" for number in range(1, 1501)))
    seen, first = [], 1
    while first is not None:
        answer = ask(tmp_path, "read_table", path="a.csv", first_row=first, rows=5000)
        seen += [int(line.split(":")[0]) for line in answer["text"].splitlines() if line[0].isdigit()]
        first = answer["next_offset"]
    assert seen == list(range(1, 1501))
    assert "no row from 2000 on" in text_of(tmp_path, "read_table", path="a.csv", first_row=2000)


def test_a_table_is_asked_of_the_right_file(tmp_path: Path) -> None:
    word(tmp_path / "a.docx", paragraph("x"))
    (tmp_path / "a.csv").write_text("a,b\n")
    (tmp_path / "endless.csv").write_text('"' + "x" * (5 * MIB))
    assert "is no workbook; use read_file" in error_of(tmp_path, "read_table", path="a.docx")
    assert "leave sheet out" in error_of(tmp_path, "read_table", path="a.csv", sheet="1")
    assert "is no table after row 0" in error_of(tmp_path, "read_table", path="endless.csv")


def test_any_other_archive_gives_its_contents(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.zip", {"x/y.txt": "12345", "bad\n.txt": ""})
    assert text_of(tmp_path, "read_file", path="a.zip").splitlines() == [
        "[a.zip: archive, its contents, 38 characters, the whole file]", "x/y.txt  5 bytes", r"bad\x0a.txt  0 bytes",
    ]  # fmt: skip


def lying(data: bytes, size: int) -> bytes:
    """Return an archive of one member that says to unpack to ``size`` bytes, in both of its headers."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        true = archive.infolist()[0].file_size.to_bytes(4, "little")
    return data.replace(true, size.to_bytes(4, "little"))


@pytest.mark.parametrize("name", ["a.docx", "a.xlsx", "a.pptx"])
def test_a_zip_bomb_is_not_unpacked(tmp_path: Path, name: str) -> None:
    main = {"docx": "word/document.xml", "xlsx": "xl/workbook.xml", "pptx": "ppt/presentation.xml"}[name[2:]]
    write_zip(tmp_path / name, {**package_root(main), main: b" " * (65 * MIB)})
    assert (tmp_path / name).stat().st_size < MIB
    assert "of 68157440 bytes is not opened" in error_of(tmp_path, "read_file", path=name)


def test_an_archive_of_too_much_or_too_many_is_not_opened(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.zip", {f"x{n}": b" " * (60 * MIB) for n in range(9)})
    assert "would unpack to 9 files of 566231040 bytes" in error_of(tmp_path, "read_file", path="a.zip")
    write_zip(tmp_path / "b.zip", {f"x{n}": "" for n in range(10_001)})
    assert "would unpack to 10001 files" in error_of(tmp_path, "read_file", path="b.zip")


def test_a_member_larger_than_it_says_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"_rels/.rels": b" " * 50_000_003})
    path.write_bytes(lying(path.read_bytes(), 100))
    assert "is damaged" in error_of(tmp_path, "read_file", path="a.zip")


@pytest.mark.parametrize("coding", ["utf-8", "utf-16"])
def test_entities_are_refused(tmp_path: Path, coding: str) -> None:
    (tmp_path / "secret").write_text("SECRET")
    entities = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(9))
    bomb = f'<!DOCTYPE d [<!ENTITY e0 "lol">{entities}]><d>&e9;</d>'
    outside = f'<!DOCTYPE d [<!ENTITY x SYSTEM "file://{tmp_path}/secret">]><d>&x;</d>'
    for text in (bomb, outside):
        head = f'<?xml version="1.0" encoding="{coding}"?>'
        main = {"word/document.xml": (head + text).encode(coding)}
        write_zip(tmp_path / "a.docx", {**package_root("word/document.xml"), **main})
        assert "document type declaration" in error_of(tmp_path, "read_file", path="a.docx")


def test_deep_nesting_and_broken_order_do_no_harm(tmp_path: Path) -> None:
    deep = 100_000
    word(tmp_path / "deep.docx", "<w:tbl><w:tr><w:tc>" * deep + paragraph("core") + "</w:tc></w:tr></w:tbl>" * deep)
    assert body(tmp_path, "deep.docx") == ["core"]
    odd = "<w:tc>" + paragraph("a") + "</w:tc><w:t>lost</w:t><w:tr/><w:p><w:p><w:r><w:t>in</w:t></w:r></w:p></w:p>"
    word(tmp_path / "odd.docx", odd)
    assert body(tmp_path, "odd.docx") == ["a", "", "in"]


@pytest.mark.parametrize(
    "data", [b"PK\x03\x04", b"PK\x03\x04" + bytes(100), b"%PDF-1.7 broken"], ids=["short", "zeros", "pdf"]
)
def test_damaged_documents_are_an_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    assert error_of(tmp_path, "read_file", path="a")


def test_missing_parts_and_bad_xml_are_an_error(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.docx", package_root("word/document.xml"))
    assert "has no part word/document.xml" in error_of(tmp_path, "read_file", path="a.docx")
    word(tmp_path / "b.docx", "<w:p>")
    assert "is damaged" in error_of(tmp_path, "read_file", path="b.docx")
    workbook(tmp_path / "c.xlsx", {"A": '<row r="x"><c r="?" t="s"><v>99</v></c><c s="z"><v>1e999</v></c></row>'})
    assert body(tmp_path, "c.xlsx") == ["[sheet A]", "1: 99 | inf"]


def test_a_part_cannot_be_named_outside_the_archive(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.docx", package_root("../../../../etc/passwd"))
    assert text_of(tmp_path, "read_file", path="a.docx").startswith("[a.docx: archive, its contents, ")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, data BLOB)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [(n, f"name {n}", None) for n in range(1, 451)])
        connection.execute("UPDATE t SET name = 'two\nlines', data = x'00ff' WHERE id = 2")
        connection.execute("CREATE INDEX i ON t (name)")
        connection.execute("CREATE VIRTUAL TABLE f USING fts5(words)")
        connection.execute("INSERT INTO f VALUES ('green tea'), ('black tea')")
        connection.execute("CREATE VIEW v AS SELECT count(*) AS n FROM t")
        connection.commit()
    return path


def test_a_database_is_queried_in_pages(tmp_path: Path, database: Path) -> None:
    first = ask(tmp_path, "query_database", path="a.db", sql="SELECT * FROM t ORDER BY id")
    assert first["text"].splitlines()[:4] == [
        "[200 rows from number 0]", "id | name | data", "1 | name 1 | NULL", "2 | two lines | BLOB of 2 bytes: 00ff",
    ]  # fmt: skip
    assert first["next_offset"] == 200
    last = ask(tmp_path, "query_database", path="a.db", sql="SELECT id FROM t ORDER BY id", offset=400)
    assert (len(last["text"].splitlines()), last["next_offset"]) == (52, None)
    recursive = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 3) SELECT sum(x) FROM c"
    for sql, value in (
        ("SELECT n FROM v", "450"), (recursive, "6"), ("PRAGMA user_version", "0"),
        ("SELECT name FROM pragma_table_info('t') LIMIT 1", "id"),
        ("SELECT name FROM sqlite_master WHERE type = 'view'", "v"), ("SELECT value FROM json_each('[7]')", "7"),
        ("SELECT words FROM f WHERE f MATCH 'green'", "green tea"),
    ):  # fmt: skip
        assert text_of(tmp_path, "query_database", path="a.db", sql=sql).splitlines()[-1] == value


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES (1000, 'x', NULL)", "DELETE FROM t", "DROP TABLE t", "CREATE TABLE u (a)",
        "CREATE TEMP TABLE u (a)", "UPDATE t SET name = ''", "UPDATE sqlite_master SET sql = ''",
        "INSERT INTO f VALUES ('x')", "ATTACH '{}/other.db' AS o", "VACUUM", "VACUUM INTO '{}/x.db'",
        "PRAGMA user_version = 7", "PRAGMA journal_mode = WAL", "PRAGMA writable_schema = ON",
        "PRAGMA temp_store_directory", "SELECT load_extension('{}/x.so')", "SELECT 1; SELECT 2", "REINDEX", "ANALYZE",
        "DETACH main", "nonsense", "", "SELECT '\0'",
    ],
)  # fmt: skip
def test_a_query_that_does_more_than_read_is_refused(tmp_path: Path, database: Path, sql: str) -> None:
    before, names = database.read_bytes(), {path.name for path in tmp_path.iterdir()}
    answer = ask(tmp_path, "query_database", path="a.db", sql=sql.replace("{}", str(tmp_path)))
    assert answer["error"] or answer["text"] == "[0 rows from number 0]\n"
    assert bool(answer["error"]) is (sql != "")
    assert database.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == names


def test_an_endless_query_and_a_huge_value_end_in_an_error(tmp_path: Path, database: Path) -> None:
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    assert "it took too long" in error_of(tmp_path, "query_database", path="a.db", sql=endless, time_limit=1.0)
    assert "too big" in error_of(tmp_path, "query_database", path="a.db", sql="SELECT zeroblob(999999999)")
    (tmp_path / "b.db").write_bytes(database.read_bytes()[:5000] + b"\xff" * 5000)
    assert error_of(tmp_path, "query_database", path="b.db", sql="SELECT * FROM t ORDER BY name")
    (tmp_path / "c.db").write_bytes(b"plain text")
    assert "is no SQLite database" in error_of(tmp_path, "query_database", path="c.db", sql="SELECT 1")


def test_what_a_write_ahead_log_holds_is_read_and_the_files_stay_as_they_are(tmp_path: Path) -> None:
    writer = sqlite3.connect(tmp_path / "live.db", isolation_level=None)
    with closing(writer):
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE t (a)")
        writer.execute("INSERT INTO t VALUES ('in the log')")
        place = tmp_path / "kept"
        place.mkdir()
        for name in ("live.db", "live.db-wal"):
            (place / name).write_bytes((tmp_path / name).read_bytes())
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    assert text_of(place, "query_database", path="live.db", sql="SELECT a FROM t").endswith("\nin the log")
    assert "not authorized" in error_of(place, "query_database", path="live.db", sql="DELETE FROM t")
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


def test_a_sheet_of_one_namespace_only_is_read(tmp_path: Path) -> None:
    strict = S.replace(
        "http://schemas.openxmlformats.org/spreadsheetml/2006", "http://purl.oclc.org/ooxml/spreadsheetml"
    )
    workbook(tmp_path / "a.xlsx", {"A": '<row r="1"><c r="B1"><v>5</v></c></row>'})
    data = (tmp_path / "a.xlsx").read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: archive.read(name).decode().replace(S, strict) for name in archive.namelist()}
    write_zip(tmp_path / "b.xlsx", parts)
    assert body(tmp_path, "b.xlsx") == body(tmp_path, "a.xlsx") == ["[sheet A]", "1:  | 5"]
