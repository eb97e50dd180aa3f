"""Images: contexts and tags as pure values, build order and errors on a fake engine, and the real images."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_uniclaw.errors import EngineError, SettingsError
from pytest_uniclaw.sandbox import base_image, image_spec, images, images_cli
from pytest_uniclaw.sandbox.image_spec import IMAGES, ImageSpec, compute_tag, context_files, context_tar, with_parents

SPEC = ImageSpec(name="sample", folder="sample", parent="debian:x", args=(("A", "1"),))
FILES = {"Dockerfile": b"FROM x\n", "a.txt": b"a"}


def test_a_tag_follows_everything_that_changes_the_image() -> None:
    tag = compute_tag(SPEC, FILES, "parent:1")
    assert tag == compute_tag(SPEC, dict(reversed(FILES.items())), "parent:1")
    assert tag.startswith("uniclaw/sample:")
    assert len(tag.partition(":")[2]) == 12
    changed = [
        compute_tag(SPEC, FILES | {"a.txt": b"b"}, "parent:1"),
        compute_tag(SPEC, FILES | {"b.txt": b""}, "parent:1"),
        compute_tag(SPEC, FILES, "parent:2"),
        compute_tag(replace(SPEC, args=(("A", "2"),)), FILES, "parent:1"),
        compute_tag(replace(SPEC, name="other"), FILES, "parent:1"),
    ]
    assert len({tag, *changed}) == 6


def test_moving_bytes_between_files_changes_the_tag() -> None:
    assert compute_tag(SPEC, {"a": b"bc", "d": b""}, "p") != compute_tag(SPEC, {"a": b"b", "d": b"c"}, "p")


def test_every_image_has_a_dockerfile_that_needs_no_buildkit() -> None:
    for spec in IMAGES.values():
        text = context_files(spec)["Dockerfile"].decode()
        assert "FROM ${PARENT}" in text
        assert "--mount" not in text
        assert "<<" not in text


def test_every_requirement_is_pinned_exactly() -> None:
    for spec in IMAGES.values():
        files = context_files(spec)
        lines = files.get("requirements.txt", b"").decode().split()
        assert lines or "package-lock.json" in files
        assert [line for line in lines if line.count("==") != 1] == []
        locked = json.loads(files.get("package-lock.json", b"{}")).get("packages", {})
        ours = {name for name in locked if f"{name.removeprefix('node_modules/')}/package.json" in files}
        bundled = {name for name, entry in locked.items() if entry.get("inBundle")}
        pinned = {name for name, entry in locked.items() if entry.get("integrity", "").startswith("sha512-")}
        assert set(locked) - {""} - ours - bundled == pinned, "what a package bundles has the package's digest"


def test_the_nanobot_lock_is_of_its_version() -> None:
    for version in image_spec.AGENTS["nanobot"].releases:
        assert f"nanobot-ai=={version}" in context_files(IMAGES[f"nanobot-{version}"])["requirements.txt"].decode()


def test_the_context_leaves_out_caches_and_dot_files(tmp_path: Path) -> None:
    for name in ("sample/Dockerfile", "sample/.hidden", "sample/__pycache__/x.pyc", "sample/sub/file"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert list(context_files(SPEC, tmp_path)) == ["Dockerfile", "sub/file"]


def test_the_context_tar_is_deterministic_and_whole() -> None:
    assert context_tar(FILES) == context_tar(FILES)
    with tarfile.open(fileobj=io.BytesIO(context_tar(FILES))) as archive:
        assert archive.getnames() == ["Dockerfile", "a.txt"]
        assert {(member.mode, member.mtime, member.uid) for member in archive.getmembers()} == {(0o644, 0, 0)}


def test_parents_come_first_and_once() -> None:
    assert with_parents(["nanobot-0.3.5", "grader"]) == ["runtime", "grader", "nanobot-0.3.5"]


@pytest.mark.parametrize(
    ("agent", "version", "name"),
    [
        ("oracle", None, "runtime"),
        ("nop", "", "runtime"),
        ("nanobot", None, "nanobot-0.1.5.post3"),
        ("nanobot", "0.3.5", "nanobot-0.3.5"),
    ],
)
def test_agents_have_images(agent: str, version: str | None, name: str) -> None:
    assert images.agent_image(agent, version) == name


@pytest.mark.parametrize(("agent", "version", "words"), [("nanobot", "9", "0.3.5"), ("robot", None, "oracle, nop")])
def test_an_unknown_agent_or_version_names_the_known_ones(agent: str, version: str | None, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        images.agent_image(agent, version)


def test_an_unknown_image_names_the_known_ones() -> None:
    with pytest.raises(SettingsError, match=r"'gradr'.*runtime, grader"):
        images.image_tag("gradr")


class FakeEngine:
    """Remembers what was built; ``fail`` is the name of an image whose build fails."""

    def __init__(self, present: tuple[str, ...] = (), fail: str = "") -> None:
        self.present = {images.image_tag(name) for name in present} | {image_spec.BASE_IMAGE}
        self.fail = fail
        self.built: list[str] = []
        self.contexts: dict[str, list[str]] = {}
        self.lock = threading.Lock()

    def images(self, name: str = "", filters: dict[str, str] | None = None) -> list[dict[str, Any]]:
        found = sorted(tag for tag in self.present if not name or tag == name)
        return [{"RepoTags": [tag], "Size": 1, "Id": tag, "Labels": {"uniclaw.image": "x"}} for tag in found]

    def build(self, **options: Any) -> Iterator[dict[str, str]]:
        name = options["labels"]["uniclaw.image"]
        with self.lock:
            assert options["buildargs"]["PARENT"] in self.present
            self.built.append(name)
            with tarfile.open(fileobj=options["fileobj"]) as archive:
                self.contexts[name] = archive.getnames()
        yield {"stream": "Step 1/1 : RUN x\n"}
        yield {"stream": "compiling\n"}
        if name == self.fail:
            yield {"error": "returned a non-zero code: 3"}
            return
        with self.lock:
            self.present.add(options["tag"])


def build(engine: FakeEngine, *names: str, ca_bundle: Path | None = None) -> list[str]:
    lines: list[str] = []
    images.build_images(engine, names, progress=lines.append, ca_bundle=ca_bundle)  # type: ignore[arg-type]
    return lines


def test_parents_are_built_before_children() -> None:
    engine = FakeEngine()
    lines = build(engine, "grader", "nanobot-0.3.5")
    assert engine.built[0] == "runtime"
    assert sorted(engine.built[1:]) == ["grader", "nanobot-0.3.5"]
    assert "runtime: Step 1/1 : RUN x" in lines


def test_only_what_is_missing_is_built() -> None:
    engine = FakeEngine(present=("runtime", "grader"))
    build(engine, "grader", "nanobot-0.3.5")
    assert engine.built == ["nanobot-0.3.5"]
    assert build(engine, "grader", "nanobot-0.3.5") == []


def test_a_missing_parent_of_a_present_image_is_not_built() -> None:
    engine = FakeEngine(present=("grader",))
    assert build(engine, "grader") == []


def test_a_failed_build_shows_its_last_lines_and_stops_its_children() -> None:
    engine = FakeEngine(fail="runtime")
    with pytest.raises(EngineError, match=r"image runtime was not built:\n  Step 1/1.*\n  compiling\n  returned a non"):
        build(engine, "grader")
    assert engine.built == ["runtime"]


def test_a_failed_build_lets_its_siblings_finish() -> None:
    engine = FakeEngine(present=("runtime",), fail="grader")
    with pytest.raises(EngineError, match="image grader was not built"):
        build(engine, "grader", "nanobot-0.3.5")
    assert images.image_tag("nanobot-0.3.5") in engine.present


@pytest.mark.parametrize(
    ("build_args", "mirror"),
    [
        (None, base_image.MIRROR), ({"APT_MIRROR": ""}, base_image.MIRROR),
        ({"APT_MIRROR": "http://mirror.example/debian"}, "http://mirror.example/debian"),
    ],
)  # fmt: skip
def test_the_base_image_is_made_from_the_mirror_of_the_builds(
    build_args: dict[str, str] | None, mirror: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(images, "base_image", lambda api, progress, mirror: asked.append(mirror))
    engine: Any = FakeEngine()
    images.build_images(engine, ["runtime"], progress=lambda line: None, build_args=build_args)
    assert asked == [mirror]


def test_the_tools_for_a_base_image_are_installed_without_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    engine: Any = FakeEngine()
    engine.present.clear()
    monkeypatch.setattr(base_image, "_pull", lambda api, tag: "no host")
    monkeypatch.setattr(base_image.os, "geteuid", lambda: 0)
    monkeypatch.setattr(base_image.shutil, "which", lambda name: name if name == "apt-get" else None)
    monkeypatch.setattr(base_image, "run_command", lambda command: ran.append(" ".join(command)))
    monkeypatch.setattr(base_image, "bootstrap_image", lambda api, **_: ran.append("bootstrap"))
    base_image.base_image(engine, progress=lambda line: None)
    assert ran[1].startswith("env DEBIAN_FRONTEND=noninteractive apt-get install ")
    assert ran[2:] == ["bootstrap"]


def test_the_host_bundle_goes_into_the_context_and_not_into_the_tag(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(b"certificates")
    engine = FakeEngine()
    build(engine, "grader", ca_bundle=bundle)
    assert images.CA_NAME in engine.contexts["runtime"]
    assert images.CA_NAME not in engine.contexts["grader"]
    assert images.CA_NAME not in context_files(IMAGES["runtime"])


def test_the_command_line_prints_tags(capsys: pytest.CaptureFixture[str]) -> None:
    assert images_cli.main(["tag", "runtime", "grader"]) == 0
    assert capsys.readouterr().out.split() == [images.image_tag("runtime"), images.image_tag("grader")]
    assert images_cli.main(["tag", "nothing"]) == 2
    assert "no image is called 'nothing'" in capsys.readouterr().err


@pytest.fixture
def engine() -> Iterator[Any]:
    import docker

    client = docker.from_env(timeout=120)
    yield client
    client.close()


def in_image(engine: Any, image: str, script: str, user: str = "root") -> str:
    output = engine.containers.run(
        images.image_tag(image),
        ["bash", "-c", script],
        user=user,
        remove=True,
        network_mode="none",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        labels={"uniclaw.test": "images"},
    )
    return output.decode()


@pytest.mark.docker
def test_built_images_are_found_and_current(engine: Any) -> None:
    assert images.missing_images(engine.api, images.DEMO_IMAGES) == []
    assert {row.name for row in images.list_images(engine.api) if row.current} >= set(images.DEMO_IMAGES)


@pytest.mark.docker
def test_the_runtime_has_its_users_tools_and_libraries(engine: Any) -> None:
    script = """
    id -u agent; id -u service; echo ~agent; stat -c '%U %a' /tmp_workspace /opt/uniclaw
    python3 -c 'import PIL, openpyxl, pypdf, docx, yaml, requests'
    for tool in git curl rg jq sqlite3 pdftotext ps file unzip; do command -v $tool >/dev/null || echo "no $tool"; done
    """
    expected = ["1000", "999", "/home/agent", "agent 755", "root 755"]
    assert in_image(engine, "runtime", script).splitlines() == expected


@pytest.mark.docker
def test_the_grader_has_pytest_and_its_user(engine: Any) -> None:
    script = "id -u; python3 -c 'import PIL, openpyxl, pypdf, docx, pytest; print(pytest.__version__)'"
    assert in_image(engine, "grader", script, user="grader").split() == ["1001", "9.2.0"]


@pytest.mark.docker
@pytest.mark.parametrize("version", image_spec.AGENTS["nanobot"].releases)
def test_nanobot_runs_without_root_and_without_a_network(engine: Any, version: str) -> None:
    if images.missing_images(engine.api, [f"nanobot-{version}"]):
        pytest.skip(f"the image of nanobot {version} is not built: make images-all")
    assert version in in_image(engine, f"nanobot-{version}", "HOME=/home/agent nanobot --version", user="agent")


@pytest.mark.docker
def test_a_build_that_fails_on_the_engine_is_explained(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert images.image_tag("runtime")
    root = shutil.copytree(image_spec.docker_root(), tmp_path / "docker")
    (root / "broken").mkdir()
    (root / "broken" / "Dockerfile").write_text("ARG PARENT\nFROM ${PARENT}\nRUN echo the-last-words; exit 3\n")
    monkeypatch.setattr(image_spec, "docker_root", lambda: root)
    monkeypatch.setitem(IMAGES, "broken", ImageSpec(name="broken", folder="broken", parent="runtime"))  # type: ignore[arg-type]
    with pytest.raises(EngineError, match=r"(?s)image broken was not built.*the-last-words.*code: 3"):
        images.build_images(engine.api, ["broken"], progress=lambda line: None)


@pytest.mark.docker
def test_prune_keeps_what_is_current(engine: Any) -> None:
    old = "uniclaw/runtime:000000000000"
    engine.images.get(images.image_tag("runtime")).tag(old)
    assert old in images.prune_images(engine.api)
    assert images.missing_images(engine.api, images.DEMO_IMAGES) == []


@pytest.mark.docker
def test_the_command_line_lists_the_images(capsys: pytest.CaptureFixture[str]) -> None:
    assert images_cli.main(["missing"]) == 0
    assert images_cli.main(["list"]) == 0
    assert images.image_tag("grader") in capsys.readouterr().out


def test_the_wheel_carries_the_dockerfiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "pytest_uniclaw"
    shutil.copytree(image_spec.docker_root(), package / "_docker")
    monkeypatch.setattr(image_spec, "_PACKAGE", package)
    assert image_spec.docker_root() == package / "_docker"
    shutil.rmtree(package / "_docker")
    with pytest.raises(SettingsError, match="neither a source checkout nor a complete installation"):
        image_spec.docker_root()


def test_specs_are_plain_values() -> None:
    assert json.dumps([SimpleNamespace(**vars(spec)).__dict__ for spec in IMAGES.values()])
