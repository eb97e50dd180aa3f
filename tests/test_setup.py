"""Set-up: what is decided from which facts, what a slim base image leaves out, and the scripts themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_uniclaw.errors import EngineError
from pytest_uniclaw.sandbox import engine_setup, images_cli
from pytest_uniclaw.sandbox.base_image import BaseFacts, plan_base, slim_filter
from pytest_uniclaw.sandbox.engine_setup import EngineFacts, plan_engine, probe, start_dockerd
from pytest_uniclaw.sandbox.host import run_command
from pytest_uniclaw.sandbox.image_spec import IMAGES

ROOT = Path(__file__).resolve().parent.parent
REFUSED = "Connection refused"
BARE = EngineFacts(answer="", refusal=REFUSED, root=True, debian=True)


@pytest.mark.parametrize(
    ("facts", "action", "words"),
    [
        (EngineFacts(answer="20.10"), "use", "20.10"),
        (EngineFacts(answer="20.10", root=False, linux=False), "use", "20.10"),
        (EngineFacts("", REFUSED, elsewhere=True, root=True, debian=True), "explain", "unset DOCKER_HOST"),
        (EngineFacts("", "PermissionError(13, 'Permission denied')", debian=True, dockerd=True), "explain", "usermod"),
        (EngineFacts("", REFUSED, linux=False), "explain", "Docker Desktop"),
        (EngineFacts("", REFUSED, debian=True), "explain", "as root"),
        (EngineFacts("", REFUSED, debian=True, dockerd=True, systemd=True), "explain", "sudo systemctl start docker"),
        (EngineFacts("", REFUSED, root=True, dockerd=True, systemd=True), "start service", REFUSED),
        (EngineFacts("", REFUSED, root=True, dockerd=True), "start dockerd", "no service manager"),
        (BARE, "install", "root on Debian"),
        (EngineFacts("", REFUSED, root=True), "explain", "not Debian or Ubuntu"),
    ],
)
def test_the_engine_plan_follows_from_the_facts(facts: EngineFacts, action: str, words: str) -> None:
    plan = plan_engine(facts)
    assert plan.action == action
    assert words in f"{plan.reason} {plan.remedy}"
    assert bool(plan.remedy) == (action == "explain")


def test_the_engine_is_installed_and_then_started(monkeypatch: pytest.MonkeyPatch) -> None:
    after = EngineFacts("", REFUSED, root=True, debian=True, dockerd=True, systemd=True)
    seen = iter([BARE, after])
    done: list[str] = []
    monkeypatch.setattr(engine_setup, "gather_facts", lambda: next(seen))
    monkeypatch.setattr(engine_setup, "install_engine", lambda progress: done.append("install"))
    monkeypatch.setattr(engine_setup, "run_command", lambda command: done.append(" ".join(command)))
    monkeypatch.setattr(engine_setup, "probe", lambda base_url: ("20.10", ""))
    lines: list[str] = []
    assert engine_setup.ensure_engine(lines.append).action == "start service"
    assert done == ["install", "systemctl start docker"]
    assert len(lines) == 2


def test_no_engine_has_its_own_exit_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(engine_setup, "gather_facts", lambda: EngineFacts("", REFUSED, debian=True))
    assert engine_setup.main([]) == 3
    printed = capsys.readouterr()
    assert "no engine: " in printed.err
    assert "fix: install Docker" in printed.err
    assert engine_setup.main(["--check"]) == 3


def test_an_engine_that_is_not_there_is_probed_with_a_reason(tmp_path: Path) -> None:
    answer, refusal = probe(f"unix://{tmp_path}/none.sock")
    assert answer == ""
    assert refusal


@pytest.mark.parametrize(
    ("stat", "stale"),
    [("7 (dockerd) S 1", False), ("7 (dockerd) Z 1", True), ("7 (bash) S 1", True), (None, True)],
)
def test_the_pid_file_of_a_killed_engine_is_removed(tmp_path: Path, stat: str | None, stale: bool) -> None:
    file = tmp_path / "docker.pid"
    file.write_text("7\n")
    (tmp_path / "proc" / "7").mkdir(parents=True)
    if stat:
        (tmp_path / "proc" / "7" / "stat").write_text(stat)
    assert engine_setup.remove_stale_pid("dockerd", file, tmp_path / "proc") == stale
    assert file.exists() != stale
    assert not engine_setup.remove_stale_pid("dockerd", tmp_path / "none", tmp_path / "proc")


@pytest.mark.parametrize(
    ("facts", "step"),
    [
        (BaseFacts(present=True), "nothing"),
        (BaseFacts(present=False, pull_error=None), "nothing"),
        (BaseFacts(present=False, pull_error="no host", root=True, apt=True, debootstrap=True), "bootstrap"),
        (BaseFacts(present=False, pull_error="no host", root=True, apt=True), "install and bootstrap"),
        (BaseFacts(present=False, pull_error="no host", root=True), "give up"),
        (BaseFacts(present=False, pull_error="no host", apt=True, debootstrap=True), "give up"),
    ],
)
def test_the_base_image_plan_follows_from_the_facts(facts: BaseFacts, step: str) -> None:
    assert plan_base(facts) == step


@pytest.mark.parametrize(
    ("name", "folder", "kept"),
    [
        ("./usr/bin/env", False, True),
        ("./proc/1", True, False),
        ("./dev/null", False, False),
        ("./proc", True, True),
        ("./usr/share/man/man1", True, True),
        ("./usr/share/man/man1/ls.1.gz", False, False),
        ("./usr/share/doc/bash/copyright", False, True),
        ("./usr/share/doc/bash/README", False, False),
        ("./var/lib/apt/lists/partial", True, True),
        ("./var/cache/apt/pkgcache.bin", False, False),
    ],
)
def test_a_slim_image_leaves_out_reading_matter_and_caches(name: str, folder: bool, kept: bool) -> None:
    member = tarfile.TarInfo(name)
    member.type = tarfile.DIRTYPE if folder else tarfile.REGTYPE
    assert (slim_filter(member) is not None) == kept


def test_all_images_are_those_that_there_are_for_the_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    every = [name for name, spec in IMAGES.items() if not spec.on_demand]
    assert images_cli.fitting(every, "amd64") == every
    assert capsys.readouterr().err == ""
    asked: list[str] = []
    engine = SimpleNamespace(version=lambda: {"Arch": "arm64"})
    monkeypatch.setattr(images_cli, "connected", lambda address: nullcontext(engine))
    monkeypatch.setattr(images_cli, "missing_images", lambda api, names: asked.extend(names) or [])
    assert images_cli.main(["missing", "--all"]) == 0
    assert set(every) - set(asked) == {"codex-0.120.0", "opencode-1.18.33"}
    printed = capsys.readouterr()
    assert "NOT RUN: opencode-1.18.33 is not built, its lock file has nothing for arm64\n" in printed.err
    assert printed.out == ""


def test_a_failing_host_command_shows_its_last_lines() -> None:
    run_command(["true"])
    with pytest.raises(EngineError, match=r"(?s)failed with status 3.*last words"):
        run_command(["sh", "-c", "echo last words; exit 3"])
    with pytest.raises(EngineError, match="did not run to its end"):
        run_command(["no-such-command-here"])


def shell(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


SCRIPTS = (
    "scripts/setup", "scripts/demo", "scripts/replay", "scripts/test", "scripts/test-agents", "scripts/fetch-edict",
    ".ci/run",
)  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_sound_and_executable(name: str) -> None:
    assert os.access(ROOT / name, os.X_OK)
    assert shell("bash", "-n", name).stderr == ""


def test_every_make_target_is_explained() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    phony = next(line for line in lines if line.startswith(".PHONY:")).split()[1:]
    assert sorted(phony) == sorted(line.split(":")[0] for line in lines if "  ## " in line)
    assert {"demo", "test", "setup"} <= set(phony)
    if shutil.which("make"):
        assert "make demo" in shell("make", "help").stdout


def test_an_unknown_option_of_setup_prints_its_usage() -> None:
    done = shell("scripts/setup", "--nonsense")
    assert done.returncode == 2
    assert "--all-images" in done.stderr


def test_a_script_called_in_its_own_folder_finds_its_usage() -> None:
    for name, words in (("setup", "--all-images"), ("fetch-edict", "--from CLONE")):
        done = subprocess.run(
            [f"./{name}", "--nonsense"], cwd=ROOT / "scripts", capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 2
        assert words in done.stderr


STAND_IN = """#!/usr/bin/env bash
# An interpreter that notes what it is asked for and makes an environment of itself.
printf '%s\\n' "$*" >> "$NOTES"
if [ "$*" = "-m venv --clear .venv" ]; then rm -rf .venv; mkdir -p .venv/bin; cp "$0" .venv/bin/python; fi
"""


def test_a_checkout_that_was_moved_gets_a_new_environment(tmp_path: Path) -> None:
    project, python, notes = tmp_path / "project", tmp_path / "a b" / "python", tmp_path / "notes"
    (project / "scripts").mkdir(parents=True)
    python.parent.mkdir()
    python.write_text(STAND_IN)
    python.chmod(0o755)
    for name in ("scripts/setup", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, project / name)

    def set_up(*options: str, **variables: str) -> list[str]:
        notes.write_text("")
        variables |= {"PYTHON": str(python), "NOTES": str(notes), "PATH": os.defpath}
        subprocess.run([project / "scripts" / "setup", *options], env=variables, capture_output=True, check=True)
        return notes.read_text().splitlines()

    made = "-m venv --clear .venv"
    assert made in set_up("--venv-only")
    assert made not in set_up("--venv-only")
    (project / "constraints.txt").write_text("other==1\n")
    asked = set_up("--venv-only")
    assert made not in asked
    assert any("pip install" in line for line in asked)
    project = project.rename(tmp_path / "moved")
    asked = set_up(HTTPS_PROXY="http://capital", http_proxy="http://small", HTTP_PROXY="http://not")
    assert made in asked
    build = "-m pytest_uniclaw.sandbox.images build"
    assert asked[-1] == f"{build} --build-arg http_proxy=http://small --build-arg https_proxy=http://capital"


def test_every_dependency_is_pinned_and_explained() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {item.partition(">=")[0].strip().lower() for item in wanted}
    pins = [line for line in (ROOT / "constraints.txt").read_text().lower().splitlines() if not line.startswith("#")]
    assert [line for line in pins if line.count("==") != 1] == []
    assert names <= {line.partition("==")[0] for line in pins}
    explained = (ROOT / "docs" / "dependencies.md").read_text().lower()
    assert [name for name in sorted(names) if name not in explained] == []


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder with a path so short that the sockets of an engine fit into it (108 bytes)."""
    with tempfile.TemporaryDirectory(prefix="uc-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.mark.docker
def test_a_private_engine_starts_and_a_broken_one_shows_its_log(short_path: Path) -> None:
    if os.geteuid() or not shutil.which("dockerd") or not shutil.which("unshare"):
        pytest.skip("starting a second engine needs root, dockerd and unshare")
    address = f"unix://{short_path}/s"
    folders = [f"--{name}={short_path}/{name}" for name in ("data-root", "exec-root", "pidfile")]
    # In namespaces of its own: with --bridge=none an engine deletes docker0, and a killed one leaves its mounts.
    command = ["unshare", "--net", "--mount", "dockerd", *folders, "-H", address, "--bridge=none", "--iptables=false"]
    process = start_dockerd(short_path / "log", command, address)
    try:
        assert probe(address)[0]
    finally:
        process.terminate()
        assert process.wait(60) == 0
    with pytest.raises(EngineError, match=r"(?s)ended with status.*the end of .*unknown flag"):
        start_dockerd(short_path / "log", ["unshare", "--net", "--mount", "dockerd", "--nonsense"], address)
