"""A role's workspace in a container: what its tools make of real documents, how it is closed off, how it ends."""

from __future__ import annotations

import subprocess
import textwrap
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.tools import TOOLS

from pytest_uniclaw.errors import EngineError, SandboxLost, TaskError
from pytest_uniclaw.sandbox import engine, workspace
from pytest_uniclaw.sandbox.base import MIB, CollectLimits, Owner, SandboxSpec, Workspace, WorkspaceJob
from pytest_uniclaw.sandbox.docker import DockerProvider
from pytest_uniclaw.sandbox.reaper import remove_owned
from pytest_uniclaw.sandbox.workspace import DockerWorkspace

pytestmark = pytest.mark.docker

PROVIDER = DockerProvider()
RUN = f"test-{uuid.uuid4().hex[:8]}"
OWNER = Owner(RUN, f"{RUN}/gw0", "attempt")
MAKE = """
import datetime, io, os, subprocess, zlib, struct
import docx, openpyxl, pptx, pypdf
from PIL import Image, ImageDraw
os.chdir("/tmp_workspace/results")

d = docx.Document()
d.add_heading("Quarterly report", 1)
d.add_paragraph("Revenue rose by ").add_run("12 %").bold = True
t = d.add_table(rows=1, cols=2); t.cell(0, 0).text = "Region"; t.cell(0, 1).text = "North"
picture = Image.new("RGB", (40, 20), (0, 0, 255)); picture.save("blue.png"); d.add_picture("blue.png")
d.sections[0].header.paragraphs[0].text = "Confidential"
d.save("a.docx")

b = openpyxl.Workbook(); s = b.active; s.title = "Costs"
s.append(["Item", "When", "Sum"]); s.append(["Tea", datetime.date(2026, 2, 28), 4.5]); s["C3"] = "=SUM(C2:C2)"
c = openpyxl.chart.BarChart(); c.title = "Sums"
c.add_data(openpyxl.chart.Reference(s, min_col=3, min_row=1, max_row=2), titles_from_data=True); s.add_chart(c, "E2")
b.create_sheet("Empty"); b.save("a.xlsx")

p = pptx.Presentation()
one = p.slides.add_slide(p.slide_layouts[1]); one.shapes.title.text = "Plan"; one.placeholders[1].text = "First step"
one.notes_slide.notes_text_frame.text = "speak slowly"
two = p.slides.add_slide(p.slide_layouts[5]); two.shapes.title.text = "Numbers"
cell = two.shapes.add_table(1, 2, 0, 0, 900000, 300000).table; cell.cell(0, 0).text = "x"; cell.cell(0, 1).text = "y"
p.save("a.pptx")

pages = [Image.new("RGB", (400, 200), "white") for _ in range(2)]
ImageDraw.Draw(pages[1]).rectangle((200, 0, 399, 199), fill="red")
pages[0].save("scan.pdf", save_all=True, append_images=pages[1:])
content = b"BT /F1 24 Tf 72 700 Td (Hello from a page) Tj ET"
objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
    b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
    b"<</Length %d>>stream\\n" % len(content) + content + b"\\nendstream",
    b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"]
out = b"%PDF-1.4\\n"; places = []
for n, o in enumerate(objects, 1):
    places.append(len(out)); out += b"%d 0 obj" % n + o + b"endobj\\n"
start = len(out); out += b"xref\\n0 6\\n0000000000 65535 f \\n" + b"".join(b"%010d 00000 n \\n" % x for x in places)
open("text.pdf", "wb").write(out + b"trailer<</Size 6/Root 1 0 R>>\\nstartxref\\n%d\\n%%%%EOF" % start)
w = pypdf.PdfWriter(clone_from="text.pdf"); w.encrypt("secret"); w.write("locked.pdf")

wide = Image.new("RGB", (4000, 1000), "white"); ImageDraw.Draw(wide).rectangle((2000, 0, 3999, 999), fill=(0, 128, 0))
wide.save("wide.png")
Image.effect_noise((3000, 3000), 200).convert("RGB").save("noise.png")
Image.new("RGBA", (10, 10), (255, 0, 0, 0)).save("clear.png")
frames = [Image.new("RGB", (10, 10), c) for c in ("red", "green", "blue")]
frames[0].save("a.gif", save_all=True, append_images=frames[1:])
turned = Image.new("RGB", (60, 20), "black"); e = turned.getexif(); e[0x0112] = 6; turned.save("turned.jpg", exif=e)
chunk = lambda k, x: struct.pack(">I", len(x)) + k + x + struct.pack(">I", zlib.crc32(k + x))
size = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
data = chunk(b"IDAT", zlib.compress(bytes(1000000))) + chunk(b"IEND", b"")
open("bomb.png", "wb").write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", size) + data)
open("cut.png", "wb").write(open("wide.png", "rb").read()[:600])

run = lambda *a: subprocess.run(["ffmpeg", "-v", "error", *a], check=True)
run("-f", "lavfi", "-i", "color=red:s=320x240:d=1", "-f", "lavfi", "-i", "color=blue:s=320x240:d=1", "-filter_complex",
    "[0][1]concat", "-metadata", "title=Two colours", "a.mp4")
run("-f", "lavfi", "-i", "sine=440:d=2", "-ar", "8000", "a.wav")
open("list.m3u8", "w").write("#EXTM3U\\n#EXTINF:1,\\n/workspace/evidence/a.mp4\\n#EXT-X-ENDLIST\\n")
"""
MEASURE = """
import base64, io, sys
from PIL import Image
picture = Image.open(io.BytesIO(base64.b64decode(sys.stdin.read()))).convert("RGB")
width, height = picture.size
spots = (picture.getpixel((x, height // 2)) for x in (width // 4, 3 * width // 4))
print(width, height, *("#%x%x%x" % tuple(round(value / 17) for value in spot) for spot in spots))
"""


@pytest.fixture(scope="module", autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    assert remove_owned(RUN).containers == 0, "every container must be gone before the module ends"


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make real documents with the libraries and programs of the image, and collect them as evidence is."""
    folder = tmp_path_factory.mktemp("evidence") / "results"
    with PROVIDER.open(SandboxSpec(OWNER, "grader")) as sandbox:
        done = sandbox.run(["python3", "-c", textwrap.dedent(MAKE)], user="agent", seconds=120)
        assert done.exit_code == 0, done.output.decode()
        sandbox.collect({"/tmp_workspace/results": folder}, CollectLimits())
    return folder


@pytest.fixture(scope="module")
def space(evidence: Path) -> Iterator[Workspace]:
    with PROVIDER.open_workspace(WorkspaceJob(OWNER, {"evidence": evidence})) as opened:
        yield opened


def inside(space: Workspace, script: str, user: str = "") -> str:
    """Run a script in a workspace's container, as the tools' account."""
    assert isinstance(space, DockerWorkspace)
    options = ["-u", user] if user else []
    command = ["docker", "exec", *options, space.container.name, "bash", "-c", script]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
    return done.stdout.decode().strip()


def lines(space: Workspace, tool: str, name: str, **arguments: object) -> list[str]:
    answer = space.call(tool, {"path": f"evidence/{name}", **arguments})
    assert answer["error"] is None
    return [line for line in answer["text"].splitlines()[1:] if line.strip()]


def failure(space: Workspace, tool: str, name: str, **arguments: object) -> str:
    answer = space.call(tool, {"path": f"evidence/{name}", **arguments})
    assert answer["error"]
    return str(answer["error"])


def seen(space: Workspace, tool: str, name: str, **arguments: object) -> tuple[str, str, tuple[int, int], list[str]]:
    """Return text, MIME type, size and the colours in the middle of the left and the right half of an image."""
    answer = space.call(tool, {"path": f"evidence/{name}", **arguments})
    assert answer["error"] is None
    (image,) = answer["images"]
    assert isinstance(space, DockerWorkspace)
    command = ["docker", "exec", "-i", space.container.name, "python3", "-c", textwrap.dedent(MEASURE)]
    done = subprocess.run(command, input=image["data"].encode(), capture_output=True, check=True, timeout=60)
    width, height, *colours = done.stdout.decode().split()
    return answer["text"], image["mime"], (int(width), int(height)), colours


def test_word_slides_and_workbooks_of_real_libraries_are_read(space: Workspace) -> None:
    assert lines(space, "read_file", "a.docx") == [
        "# Quarterly report", "Revenue rose by 12 %", "Region | North", "[header1]", "Confidential",
        "[picture 1: word/media/image1.png; view_image shows it as page=1]",
    ]  # fmt: skip
    assert lines(space, "read_file", "a.pptx") == [
        "[slide 1]", "Plan", "First step", "[notes of slide 1]", "speak slowly", "[slide 2]", "Numbers", "x | y",
    ]  # fmt: skip
    rows = ["1: Item | When | Sum", "2: Tea | 2026-02-28 | 4.5", "3:  |  | (=SUM(C2:C2))"]
    assert lines(space, "read_table", "a.xlsx") == rows
    book = lines(space, "read_file", "a.xlsx")
    assert book[:5] == ["[sheet Costs]", *rows, "[sheet Empty]"]
    assert book[5:8] == ["[chart xl/charts/chart1.xml]", "kind: barChart", "title: Sums"]
    assert book[8].startswith("series: 'Costs'!C1")


def test_pdf_pages_are_read_and_seen(space: Workspace) -> None:
    assert [line.strip() for line in lines(space, "read_file", "text.pdf")] == ["[page 1]", "Hello from a page"]
    quotes = [{"path": "evidence/text.pdf", "text": "Hello from  a page"}]
    assert space.call("find_quotes", {"quotes": quotes})["found"] == [True]
    assert lines(space, "read_file", "scan.pdf") == ["[page 1]", "[page 2]"]
    text, mime, size, colours = seen(space, "view_image", "scan.pdf", page=2)
    assert text == "[evidence/scan.pdf: PDF, page 2 of 2; shown as 1568 x 784]"
    assert (mime, size, colours) == ("image/png", (1568, 784), ["#fff", "#f00"])
    half = seen(space, "view_image", "scan.pdf", page=2, box=[0.5, 0, 1, 1])
    assert half[2:] == ((1568, 1568), ["#f00", "#f00"])
    assert failure(space, "view_image", "scan.pdf", page=3) == "evidence/scan.pdf: has 2 pages"
    assert "password" in failure(space, "read_file", "locked.pdf")


def test_pictures_are_scaled_cut_and_turned(space: Workspace) -> None:
    text, mime, size, colours = seen(space, "view_image", "wide.png")
    assert text == "[evidence/wide.png: PNG, 4000 x 1000 pixels; shown as 1568 x 392]"
    assert (mime, size, colours) == ("image/png", (1568, 392), ["#fff", "#080"])
    part = seen(space, "view_image", "wide.png", box=[0.4, 0.2, 0.6, 0.8])
    assert part[0].endswith("pixels, part 0.4, 0.2, 0.6, 0.8; shown as 800 x 600]")
    assert part[2:] == ((800, 600), ["#fff", "#080"])
    assert seen(space, "view_image", "noise.png")[1:3] == ("image/jpeg", (1568, 1568))
    assert seen(space, "view_image", "turned.jpg")[2] == (20, 60)
    assert "page 3 of 3" in seen(space, "view_image", "a.gif", page=3)[0]
    assert failure(space, "view_image", "a.gif", page=4) == "evidence/a.gif: has 3 pages"
    inner = seen(space, "view_image", "a.docx", page=1)
    assert inner[0] == "[evidence/a.docx: word/media/image1.png: PNG, 40 x 20 pixels; shown as 40 x 20]"
    assert inner[3] == ["#00f", "#00f"]
    assert "holds 1 pictures" in failure(space, "view_image", "a.docx", page=2)


def test_hostile_pictures_are_an_error(space: Workspace) -> None:
    assert failure(space, "view_image", "bomb.png") == "evidence/bomb.png: has too many pixels to be shown"
    assert "is damaged" in failure(space, "view_image", "cut.png")
    assert "is no picture" in failure(space, "view_image", "list.m3u8")


def test_audio_and_video_are_told_and_shown(space: Workspace) -> None:
    told = "\n".join(lines(space, "media_info", "a.mp4"))
    for fact in ("Duration: 00:00:02.00", "320x240", "Two colours", "Video: h264"):
        assert fact in told
    assert "/workspace" not in told
    sound = "\n".join(lines(space, "media_info", "a.wav"))
    assert "Duration: 00:00:02.00" in sound
    assert "Audio: pcm_s16le" in sound
    assert "8000 Hz, mono" in sound
    text, mime, size, colours = seen(space, "media_frame", "a.mp4", seconds=0.5)
    assert (text, mime, size, colours[0]) == ("[evidence/a.mp4: the frame at 0.5 s]", "image/jpeg", (320, 240), "#f00")
    assert seen(space, "media_frame", "a.mp4", seconds=1.5)[3] == ["#00f", "#00f"]
    assert "has no picture at 9 s" in failure(space, "media_frame", "a.mp4", seconds=9)
    assert "ffmpeg could not show a frame" in failure(space, "media_frame", "a.wav", seconds=0)
    for name in ("list.m3u8", "a.docx"):
        assert "ffmpeg could not read it" in failure(space, "media_info", name)


def test_it_is_closed_off(space: Workspace) -> None:
    assert inside(space, "id -u; id -g; ls /sys/class/net") == "1001\n1001\nlo"
    assert inside(space, "grep -E 'Cap(Prm|Eff|Bnd)|NoNewPrivs' /proc/1/status | awk '{print $2}' | sort -u") == (
        "0000000000000000\n1"
    )
    assert inside(space, f"find /workspace {workspace.TOOLS} ! -user root -o -perm /022 -o -writable") == ""
    assert "Permission denied" in inside(space, "echo x >> /workspace/evidence/list.m3u8")
    assert "Permission denied" in inside(space, f"touch {workspace.TOOLS}/x")
    assert isinstance(space, DockerWorkspace)
    host = space.container.api.inspect_container(space.container.name)["HostConfig"]
    assert (host["Memory"], host["MemorySwap"], host["PidsLimit"], host["Binds"]) == (1024 * MIB, 1024 * MIB, 256, None)
    mounts = inside(space, "cut -d' ' -f2 /proc/mounts").split()
    assert [m for m in mounts if not m.startswith(("/proc", "/sys", "/dev", "/etc/")) and m != "/"] == []
    assert inside(space, "kill -9 1; kill -TERM 1; echo alive") == "alive"


def test_links_stay_inside_and_what_is_unsafe_is_refused(tmp_path: Path) -> None:
    inner, outside = tmp_path / "inner", tmp_path / "outside"
    inner.mkdir()
    (tmp_path / "secret").write_text("SECRET")
    (inner / "a.txt").write_text("hello")
    (inner / "l").symlink_to("a.txt")
    outside.mkdir()
    (outside / "l").symlink_to("../secret")
    job = WorkspaceJob(OWNER, {"task/one.txt": inner / "a.txt", "task/all": inner})
    with PROVIDER.open_workspace(job) as space:
        assert space.call("read_file", {"path": "task/all/l"})["text"].endswith("\nhello")
        assert space.call("read_file", {"path": "task/one.txt"})["text"].endswith("\nhello")
    with (
        pytest.raises(TaskError, match="leaves its folder"),
        PROVIDER.open_workspace(WorkspaceJob(OWNER, {"evidence": outside})),
    ):
        pass
    for name in ("../up", "/abs", "", "a\0b"):
        with (
            pytest.raises(ValueError, match="a name in a workspace"),
            PROVIDER.open_workspace(WorkspaceJob(OWNER, {name: inner})),
        ):
            pass


def test_a_large_order_gets_through(space: Workspace) -> None:
    quotes = [{"path": "evidence/list.m3u8", "text": f"{number} " + "x" * 9000} for number in range(999)]
    found = space.call("find_quotes", {"quotes": [*quotes, {"path": "evidence/list.m3u8", "text": "#EXTM3U"}]})["found"]
    assert (len(found), sum(found), found[-1]) == (1000, 1, True)


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> WorkspaceJob:
    """Return a job whose tools are a script of the test."""
    harness, folder = tmp_path / "harness", tmp_path / "folder"
    harness.mkdir()
    folder.mkdir()
    (harness / TOOLS.name).write_text(f"import os, signal, sys, time\nsys.stdin.readline()\n{body}\n")
    monkeypatch.setattr(workspace, "HARNESS", harness)
    return WorkspaceJob(OWNER, {"evidence": folder}, memory=256 * MIB)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)", "did not end in time"),
        ("os.fork() or time.sleep(600)", "gave no usable answer (exit status 0)"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "gave no usable answer (exit status 139)"),
        ("x = b'x' * (400 << 20)", "took too much memory"), ("print('nonsense')", "gave no usable answer"),
        ("print('{\"text\": 1}')", "gave no usable answer"), ("print('x' * (17 << 20))", "gave no usable answer"),
        ("print('[' * 200000)", "gave no usable answer"), ("raise SystemExit(3)", "exit status 3"),
    ],
)  # fmt: skip
def test_a_tool_that_hangs_dies_or_talks_nonsense_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, error: str
) -> None:
    with PROVIDER.open_workspace(stand_in(tmp_path, monkeypatch, body)) as space:
        began = time.monotonic()
        for _ in range(2):  # the workspace lives on
            answer = space.call("read_file", {}, seconds=0.5)
            assert (answer["text"], answer["images"], answer["next_offset"]) == ("", [], None)
            assert error in answer["error"]
        assert time.monotonic() - began < 20


def test_a_workspace_that_is_killed_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = stand_in(tmp_path, monkeypatch, "time.sleep(600)")
    with PROVIDER.open_workspace(job) as space:
        assert isinstance(space, DockerWorkspace)
        killer = subprocess.Popen(["bash", "-c", f"sleep 1; docker kill {space.container.name} > /dev/null"])
        with pytest.raises(SandboxLost):
            space.call("read_file", {}, seconds=60)
        killer.wait()
        with pytest.raises(SandboxLost):
            space.call("read_file", {})
    with PROVIDER.open_workspace(job) as space:
        assert isinstance(space, DockerWorkspace)
        space.container.remove()
        with pytest.raises(EngineError, match="removed from outside"):
            space.call("read_file", {})


def test_the_reaper_and_the_sweep_find_it(tmp_path: Path) -> None:
    run = f"test-{uuid.uuid4().hex[:8]}"
    job = WorkspaceJob(Owner(run, f"{run}/gw0", "a/1"), {"evidence": tmp_path}, seconds=100.0)
    with PROVIDER.open_workspace(job) as space:
        assert isinstance(space, DockerWorkspace)
        labels = space.container.api.inspect_container(space.container.name)["Config"]["Labels"]
        assert (labels["uniclaw"], labels["uniclaw.run"], labels["uniclaw.attempt"]) == ("1", run, "a/1")
        assert 600 < float(labels["uniclaw.deadline"]) - time.time() <= 701
        assert remove_owned(run).containers == 1
        with pytest.raises(EngineError, match="removed from outside"):
            space.call("list_files", {})


def test_it_is_removed_whatever_happens(tmp_path: Path) -> None:
    run = f"test-{uuid.uuid4().hex[:8]}"
    job = WorkspaceJob(Owner(run, run, "a"), {"evidence": tmp_path})
    with pytest.raises(ZeroDivisionError), PROVIDER.open_workspace(job):
        _ = 1 / 0
    with (
        pytest.raises(FileNotFoundError),
        PROVIDER.open_workspace(WorkspaceJob(job.owner, {"evidence": tmp_path / "gone"})),
    ):
        pass
    with closing(engine.connect(None)) as api:
        assert api.containers(all=True, filters={"label": f"uniclaw.run={run}"}) == []
