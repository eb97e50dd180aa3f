"""The roles' tools as a process: files, text, search and quotes, and what hostile content cannot do to them."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path

import pytest
from support.tools import TOOLS, ask, error_of, send, text_of

from pytest_uniclaw.judge import toolset
from pytest_uniclaw.judge.harness import toolbox
from pytest_uniclaw.judge.harness.searching import QUOTE_CHARACTERS

pytestmark = pytest.mark.processes


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def put(root: Path, name: str, content: bytes | str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def quotes(root: Path, *pairs: tuple[str, str]) -> list[bool]:
    answer = ask(root, "find_quotes", quotes=[{"path": path, "text": text} for path, text in pairs])
    assert answer["error"] is None
    return list(answer["found"])


def test_the_definitions_name_the_tools_and_their_arguments() -> None:
    defined = {tool["function"]["name"]: tuple(tool["function"]["parameters"]["properties"]) for tool in toolset.TOOLS}
    offered = {name: arguments for name, (_, arguments) in toolbox.TOOLS.items() if name != "find_quotes"}
    assert defined == offered
    assert json.loads(json.dumps(toolset.TOOLS)) == list(toolset.TOOLS)


def test_files_are_listed_to_a_depth_with_sizes(root: Path) -> None:
    put(root, "evidence/results/a.txt", "12345")
    put(root, "evidence/results/deep/b/c.txt", "")
    put(root, "references/eval_rule.md", "x")
    (root / "evidence" / "link").symlink_to("results/a.txt")
    assert text_of(root, "list_files").splitlines() == [
        "[.: 7 entries to depth 3]", "evidence/", "evidence/link  (a link to evidence/results/a.txt)",
        "evidence/results/", "evidence/results/a.txt  5 bytes", "evidence/results/deep/  (1 entries, not listed)",
        "references/", "references/eval_rule.md  1 bytes",
    ]  # fmt: skip
    assert text_of(root, "list_files", path="evidence/results/deep", depth=9).splitlines() == [
        "[evidence/results/deep: 2 entries to depth 9]", "evidence/results/deep/b/",
        "evidence/results/deep/b/c.txt  0 bytes",
    ]  # fmt: skip
    assert text_of(root, "list_files", path="evidence/results/a.txt") == "evidence/results/a.txt  5 bytes"


def test_a_long_listing_comes_in_pages(root: Path) -> None:
    for number in range(1203):
        put(root, f"f{number:04}", "")
    seen, offset, pages = [], 0, 0
    while offset is not None:
        answer = ask(root, "list_files", offset=offset)
        head, *lines = answer["text"].splitlines()
        assert head.startswith(f"[.: 1203 entries to depth 3; these are {offset + 1} to ")
        seen += [line.split()[0] for line in lines if not line.startswith("[cut here")]
        offset, pages = answer["next_offset"], pages + 1
    assert seen == [f"f{number:04}" for number in range(1203)]
    assert pages == 3


def test_a_file_is_read_in_pages_and_nothing_is_lost(root: Path) -> None:
    whole = "".join(f"line {number} – 中文\n" for number in range(6000))
    put(root, "long.txt", whole)
    first = ask(root, "read_file", path="long.txt")
    assert first["text"].startswith(f"[long.txt: text, {len(whole)} characters, these are 0 to 16384]\nline 0 ")
    assert first["text"].endswith(f"[cut here: {len(whole) - 16384} characters follow, go on with offset=16384]")
    read, offset = "", 0
    while offset is not None:
        answer = ask(root, "read_file", path="long.txt", offset=offset, limit=99999)
        body = answer["text"].partition("\n")[2]
        read += body.rpartition("\n[cut here")[0] if answer["next_offset"] else body
        assert len(answer["text"].encode()) <= 65_536
        offset = answer["next_offset"]
    assert read == whole
    assert "is beyond its end" in error_of(root, "read_file", path="long.txt", offset=len(whole))


def test_a_page_of_wide_characters_stays_within_the_bytes_of_an_answer(root: Path) -> None:
    put(root, "wide.txt", "数" * 40_000)
    answer = ask(root, "read_file", path="wide.txt", limit=32768)
    assert answer["next_offset"] == 20_000
    assert len(answer["text"].encode()) < 65_536


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b"", "text", ""), (b"\xef\xbb\xbfa\n", "text", "a\n"),
        ("价格 5".encode("gb18030"), "text (gb18030)", "价格 5"),
        ("é".encode("utf-16"), "text (utf-16)", "é"), (b"caf\xe9 ok", "text (damaged utf-8)", "caf\ufffd ok"),
        (b"a\x1b[31mb\x07", "text", "a\ufffd[31mb\ufffd"), (b"x" * 9000 + b"\0y", "text", "x" * 9000 + "\ufffdy"),
    ],
)  # fmt: skip
def test_text_is_decoded_and_says_how(root: Path, data: bytes, kind: str, text: str) -> None:
    put(root, "f", data)
    assert text_of(root, "read_file", path="f") == f"[f: {kind}, {len(text)} characters, the whole file]\n{text}"


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (b"SQLite format 3\0" + bytes(90), "use query_database"), (b"\x89PNG\r\n\x1a\n\0\0", "use view_image"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "use view_image"), (b"ID3\x03\0\0", "media_info tells about audio and video"),
        (b"\0\x01\x02", "it has no text to read"), (b"\xd0\xcf\x11\xe0" + bytes(9), "an old or encrypted Office file"),
    ],
)  # fmt: skip
def test_what_is_no_text_names_the_right_tool(root: Path, data: bytes, advice: str) -> None:
    put(root, "f", data)
    assert advice in error_of(root, "read_file", path="f")


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../secret", "a/../../secret", "a\0b", "out", "up", "loop", "nothing", "a/b", "\ud800", "dir/x"],
)
def test_no_path_leads_out_of_the_workspace(root: Path, path: str) -> None:
    put(root.parent, "secret", "SECRET")
    put(root, "a", "inside")
    (root / "out").symlink_to("/etc/passwd")
    (root / "up").symlink_to("../secret")
    (root / "loop").symlink_to("loop")
    (root / "dir").symlink_to("..")
    for tool in ("read_file", "list_files", "media_info", "view_image", "read_table"):
        assert "SECRET" not in error_of(root, tool, path=path)
    assert "SECRET" not in error_of(root, "query_database", path=path, sql="select 1")
    assert "SECRET" not in error_of(root, "search", pattern=".", path=path)
    assert quotes(root, (path, "SECRET")) == [False]


def test_links_out_are_listed_and_not_searched(root: Path) -> None:
    put(root.parent, "secret", "SECRET")
    (root / "out").symlink_to("../secret")
    (root / "dir").symlink_to("..")
    note = "(a link to a place outside the workspace or nowhere)"
    assert text_of(root, "list_files").splitlines()[1:] == [f"dir  {note}", f"out  {note}"]
    assert text_of(root, "search", pattern="SECRET") == "[no match from number 0 on]"


def test_a_link_inside_is_followed(root: Path) -> None:
    put(root, "a/b.txt", "hello")
    (root / "l").symlink_to("a")
    assert text_of(root, "read_file", path="l/b.txt") == "[a/b.txt: text, 5 characters, the whole file]\nhello"


def test_special_files_never_block(root: Path) -> None:
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "socket"))
    for name in ("fifo", "socket"):
        assert error_of(root, "read_file", path=name) == f"{name}: neither a file nor a folder"
    assert "fifo  (neither a file nor a folder)" in text_of(root, "list_files")
    assert text_of(root, "search", pattern="x") == "[no match from number 0 on]"


def test_odd_names_are_shown_escaped_and_found_as_shown(root: Path) -> None:
    names = [b"bad\xff.txt", b"new\nline.txt", "turn\u202eed.txt".encode()]
    for name in names:
        Path(os.fsdecode(bytes(root) + b"/" + name)).write_text("here")
    listed = [line.split("  ")[0] for line in text_of(root, "list_files").splitlines()[1:]]
    assert sorted(listed) == [r"bad\xff.txt", r"new\x0aline.txt", r"turn\xe2\x80\xaeed.txt"]
    for name in listed:
        assert text_of(root, "read_file", path=name).endswith("here")


def test_a_deep_tree_and_a_folder_of_many_files_are_walked(root: Path) -> None:
    deep = root / "deep"
    deep.mkdir()
    here = os.open(deep, os.O_RDONLY)
    for _ in range(30):  # in all far longer than a path may be
        os.mkdir("d" * 200, dir_fd=here)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    many = root / "many"
    many.mkdir()
    for number in range(20_000):
        (many / f"{number:05}").touch()
    (many / "needle").write_text("needle")
    assert text_of(root, "list_files", depth=1).splitlines()[1:] == [
        "deep/  (1 entries, not listed)", "many/  (20001 entries, not listed)",
    ]  # fmt: skip
    assert ask(root, "list_files", depth=64)["next_offset"] == 500
    assert text_of(root, "search", pattern="needle").splitlines() == [
        "[1 matches from number 0]", "many/needle:1: needle",
    ]  # fmt: skip


def test_search_gives_file_line_and_surroundings(root: Path) -> None:
    put(root, "a.txt", "one\ntwo Apples\n" + "x" * 500 + "apple" + "y" * 500 + "\n")
    put(root, "b/c.json", '{"k": "apple"}')
    put(root, "pic.png", b"\x89PNG\0")
    assert text_of(root, "search", pattern="(?i)apple").splitlines() == [
        "[3 matches from number 0]", "a.txt:2: two Apples", f"a.txt:3: …{'x' * 120}apple{'y' * 120}…",
        'b/c.json:1: {"k": "apple"}', "[not searched: pic.png: is an image (PNG); use view_image]",
    ]  # fmt: skip
    assert text_of(root, "search", pattern="two", path="b") == "[no match from number 0 on]"


def test_many_matches_come_in_pages(root: Path) -> None:
    put(root, "a.txt", "hit hit\n" * 75)
    first = ask(root, "search", pattern="hit")
    assert first["next_offset"] == 100
    last = ask(root, "search", pattern="hit", offset=100)
    assert len(first["text"].splitlines()) == 102
    assert (len(last["text"].splitlines()), last["next_offset"]) == (51, None)


@pytest.mark.parametrize("pattern", ["(", "", "a{99999999999999}", "x" * 2001, "(?P<n>a)(?P<n>b)"])
def test_a_bad_pattern_is_an_error(root: Path, pattern: str) -> None:
    assert "pattern" in error_of(root, "search", pattern=pattern)


def test_a_catastrophic_pattern_ends_in_time(root: Path) -> None:
    put(root, "a.txt", "found\n" + "a" * 5000 + "b\n")
    began = time.monotonic()
    answer = ask(root, "search", pattern="found|(a+)+$", time_limit=1.0)
    assert time.monotonic() - began < 10
    assert answer["error"] is None
    assert "a.txt:1: found" in answer["text"]
    assert "the time was over before everything was searched" in answer["text"]


def test_quotes_are_found_whatever_their_white_space_and_width(root: Path) -> None:
    put(root, "a.txt", "The  total\n is １２３ Euro.\u200b It\u00a0is the ﬁrst.")
    wanted = {
        "The total is 123 Euro. It is the first.": True, " total\tis ": True, "１２３ Eu\u2060ro": True,
        "the total": False, "The total was": False, "": False, " \u200b\n": False, "123 Euro": True,
    }  # fmt: skip
    assert quotes(root, *(("a.txt", text) for text in wanted)) == list(wanted.values())


def test_quotes_of_json_may_resolve_its_escapes(root: Path) -> None:
    line = json.dumps({"text": 'He said "yes"\nand left für 5 €'})
    put(root, "t.jsonl", line)
    texts = ('He said "yes" and left', r"He said \"yes\"\nand", "für 5 €", "He said yes")
    assert quotes(root, *(("t.jsonl", text) for text in texts)) == [True, True, True, False]


def test_quotes_in_files_that_cannot_be_read_are_not_found_and_say_why(root: Path) -> None:
    put(root, "a.txt", "x")
    put(root, "b.bin", b"\0")
    answer = ask(root, "find_quotes", quotes=[{"path": p, "text": "x"} for p in ("a.txt", "b.bin", "gone", "b.bin")])
    assert answer["found"] == [True, False, False, False]
    assert [line.partition(":")[0] for line in answer["text"].splitlines()] == ["b.bin", "gone"]


def test_of_a_text_that_is_too_long_the_beginning_is_looked_through(root: Path) -> None:
    put(root, "long.txt", "the total is 412.50\n" + "x" * (QUOTE_CHARACTERS + 10) + "\nthe end\n")
    assert quotes(root, ("long.txt", "the total is 412.50"), ("long.txt", "the end")) == [True, False]


@pytest.mark.parametrize("wanted", [None, "x", [1], [{"path": "a"}], [{"path": 1, "text": "x"}], [{}] * 1001])
def test_malformed_quotes_are_an_error(root: Path, wanted: object) -> None:
    assert "quote" in error_of(root, "find_quotes", quotes=wanted)


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("read_file", {}, "path is missing"), ("read_file", {"path": 5}, "path must be a string"),
        ("read_file", {"path": "a", "offset": -1}, "offset must be a whole number, 0 or more"),
        ("read_file", {"path": "a", "limit": "many"}, "limit must be a number"),
        ("read_file", {"path": "a", "limit": True}, "limit must be a number"),
        ("read_file", {"path": "a", "offset": float("inf")}, "offset must be a number"),
        ("read_file", {"path": "a", "line": 1}, "read_file takes path, offset, limit, not 'line'"),
        ("write_file", {"path": "a"}, "there is no tool 'write_file'"),
        ("list_files", {"depth": 1.5}, "depth must be a whole number"),
        ("media_frame", {"path": "a"}, "seconds is missing"),
        ("media_frame", {"path": "a", "seconds": -1}, "seconds must be 0 or more"),
        ("view_image", {"path": "a", "box": [0, 0, 1]}, "box must be four numbers"),
        ("view_image", {"path": "a", "box": [0.5, 0, 0.5, 1]}, "box must be four numbers"),
    ],
)  # fmt: skip
def test_wrong_arguments_say_what_is_wrong(root: Path, tool: str, arguments: dict[str, object], text: str) -> None:
    put(root, "a", "text")
    assert text in error_of(root, tool, **arguments)


def test_numbers_may_be_digits_and_nulls_are_left_out(root: Path) -> None:
    put(root, "a", "0123456789")
    assert text_of(root, "read_file", path="a", offset="8", limit=None).endswith("]\n89")


@pytest.mark.parametrize(
    "order", [b"", b"{", b"[]\n", b'{"tool": 1}\n', b'{"tool": "x", "arguments": []}\n', b"[" * 99999]
)
def test_a_malformed_order_is_answered(order: bytes) -> None:
    assert send(order)["error"]


def test_time_and_memory_are_bounded(root: Path) -> None:
    put(root, "big.txt", b"\xff" + b"a" * (64 << 20))
    assert "it took too long" in error_of(root, "read_file", path="big.txt", time_limit=0.01)
    put(root, "one.txt", "quote " * (8 << 20))
    assert (
        "more memory than there is"
        in ask(root, "find_quotes", quotes=[{"path": "one.txt", "text": "x"}], memory=150 << 20)["error"]
    )


def test_the_harness_leaves_nothing_behind(root: Path) -> None:
    put(root, "a.txt", "x")
    before = sorted(path.name for path in TOOLS.parent.iterdir())
    root.chmod(0o555)
    text_of(root, "read_file", path="a.txt")
    root.chmod(0o755)
    assert [path.name for path in root.iterdir()] == ["a.txt"]
    assert [name for name in sorted(path.name for path in TOOLS.parent.iterdir()) if name != "__pycache__"] == [
        name for name in before if name != "__pycache__"
    ]  # fmt: skip


def test_a_library_that_is_missing_is_named(root: Path) -> None:
    put(root, "a.png", b"\x89PNG\0")
    if any(Path(path, "PIL").is_dir() for path in sys.path):
        pytest.skip("NOT RUN: this environment has Pillow")
    assert error_of(root, "view_image", path="a.png") == "this sandbox has no Pillow, which this needs"
