"""A built wheel, installed elsewhere: it is complete, finds the same images, and runs a foreign project's suite.

Nothing is downloaded. The wheel goes into a virtual environment of its own, which borrows the dependencies of this
one through a folder of links that leaves this project out: what runs is what the wheel brought.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.packages import Suite

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 300.0


@dataclass(frozen=True)
class Installed:
    """The wheel and the environment it was installed in."""

    wheel: Path
    bin: Path

    def run(self, program: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment; ``PYTHONPATH`` could bring the checkout back in."""
        command = [str(self.bin / program), *arguments]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}  # noqa: TID251
        return subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip

    def output(self, program: str, *arguments: str, cwd: Path) -> str:
        """Run a program that must succeed and return what it printed."""
        done = self.run(program, *arguments, cwd=cwd)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def succeed(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Build the wheel and install it."""
    folder = tmp_path_factory.mktemp("wheel")
    succeed(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist", ROOT)
    (wheel,) = (folder / "dist").glob("*.whl")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    succeed(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    (site,) = (folder / "venv" / "lib").glob("python3*/site-packages")
    (site / "borrowed.pth").write_text(f"{borrow(folder / 'borrowed')}\n")
    return Installed(wheel, python.parent)


def borrow(folder: Path) -> Path:
    """Fill a folder with links to everything that is installed here but this project; ``.pth`` files do not count."""
    folder.mkdir()
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(place).iterdir():
            if not entry.name.startswith("pytest_uniclaw") and entry.suffix != ".pth":
                (folder / entry.name).symlink_to(entry)
    return folder


def test_the_wheel_holds_every_file_of_the_package_and_of_the_images(installed: Installed) -> None:
    packed = set(zipfile.ZipFile(installed.wheel).namelist())
    source = {path.relative_to(ROOT) for path in (ROOT / "pytest_uniclaw").rglob("*") if path.is_file()}
    wanted = {str(path) for path in source if "__pycache__" not in path.parts}
    wanted |= {
        str(Path("pytest_uniclaw/_docker", path.relative_to(ROOT / "docker")))
        for path in (ROOT / "docker").rglob("*") if path.is_file() and ".local" not in path.name
    }  # fmt: skip
    assert wanted <= packed, f"missing from the wheel: {sorted(wanted - packed)}"
    assert "pytest_uniclaw/py.typed" in packed
    strangers = {name for name in packed - wanted if ".dist-info/" not in name}
    assert not strangers, f"nothing else belongs in the wheel: {sorted(strangers)}"


def test_the_wheel_is_what_runs_there(installed: Installed, tmp_path: Path) -> None:
    code = "import pytest_uniclaw, docker; print(pytest_uniclaw.__file__)"
    place = Path(installed.output("python", "-c", code, cwd=tmp_path).strip())
    assert place.is_relative_to(installed.bin.parent)


def test_the_wheel_computes_the_tags_of_the_checkout(installed: Installed, tmp_path: Path) -> None:
    """Other tags would mean that a machine with all images builds them again."""
    here = Installed(installed.wheel, Path(sys.executable).parent)
    tags = installed.output("uniclaw", "images", "tag", "--all", cwd=tmp_path)
    assert tags.splitlines()
    assert tags == here.output("uniclaw", "images", "tag", "--all", cwd=tmp_path)


@pytest.mark.docker
def test_the_wheel_sees_the_images_that_the_checkout_built(installed: Installed, tmp_path: Path) -> None:
    listed = installed.output("uniclaw", "images", "list", cwd=tmp_path)
    current = [line for line in listed.splitlines() if "not current" not in line]
    assert any("/runtime:" in line for line in current), listed
    assert any("/grader:" in line for line in current), listed


@pytest.mark.docker
def test_a_foreign_project_runs_its_own_suite(installed: Installed, tmp_path: Path) -> None:
    suite = Suite.make(tmp_path / "project")
    suite.add("foreign")
    done = installed.run("python", "-m", "pytest", "suites", "--agent=oracle", "-q", cwd=suite.root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert "1/1 passed, coverage 1/1" in done.stdout
