"""The grading harness as a process: one line per check whatever the checks and the evidence do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.processes

HARNESS = Path(__file__).parents[1] / "pytest_uniclaw" / "judge" / "harness"
Lines = list[dict[str, Any]]
Grade = Callable[..., Lines]


@pytest.fixture
def grade(tmp_path: Path) -> Grade:
    """Run the harness over a check file, with the given result files, in a root of its own."""

    def run(
        source: str, results: Mapping[str, bytes] | None = None, *, only: Iterable[str] = (), seconds: float = 20.0,
        extra: Mapping[str, str] | None = None,
    ) -> Lines:
        root = tmp_path / "grading"
        checks = root / "references" / "checks"
        checks.mkdir(parents=True, exist_ok=True)
        for name, content in {"check_it.py": source, **(extra or {})}.items():
            (checks / name).write_text("import os, pytest\n" + textwrap.dedent(content), "utf-8")
        for name, data in (results or {}).items():
            path = root / "evidence" / "results" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        (root / "job.json").write_text(json.dumps({"only": list(only), "check_seconds": seconds}))
        command = [sys.executable, "-I", str(HARNESS / "run_checks.py"), str(root)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr.decode()
        text = (root / "out" / "judgements.jsonl").read_text("ascii")
        return [json.loads(line) for line in text.splitlines()]

    return run


def of_kind(lines: Lines, kind: str) -> Lines:
    return [line for line in lines if line["kind"] == kind]


def outcomes(lines: Lines) -> dict[str, str]:
    return {line["node"].partition("::")[2]: line["outcome"] for line in lines if "outcome" in line}


def test_every_kind_of_outcome_is_reported(grade: Grade) -> None:
    lines = grade(
        """
        @pytest.mark.checkpoint("C1")
        def check_passes(evidence):
            assert evidence.text("a.txt") == "hello"

        @pytest.mark.checkpoint("C2")
        def check_fails(evidence):
            assert evidence.json("none.json")["x"] == 1

        @pytest.mark.checkpoint("C3")
        def check_breaks(evidence):
            {}["missing"]

        @pytest.mark.checkpoint("C4")
        def check_skips():
            pytest.skip("not today")

        @pytest.mark.checkpoint("C5")
        def check_is_partial(evidence):
            evidence.award(0.25)
            evidence.award(0.5)
            evidence.award(0.0)

        @pytest.mark.cap("invented")
        def check_cap(evidence):
            assert 1 == 2, "row 7 is invented"

        @pytest.mark.fatal("deleted the source")
        def check_fatal(evidence):
            pytest.fail("the source is gone")
        """,
        {"a.txt": b"\xef\xbb\xbfhello"},
    )
    assert lines[0]["kind"] == "collected"
    assert lines[-1] == {"kind": "end"}
    marked = [node["id"] for node in lines[0]["nodes"]]
    assert marked == ["C1", "C2", "C3", "C4", "C5", "invented", "deleted the source"]
    assert outcomes(lines) == {
        "check_passes": "passed", "check_fails": "failed", "check_breaks": "error", "check_skips": "skipped",
        "check_is_partial": "passed", "check_cap": "failed", "check_fatal": "failed",
    }
    by_id = {line["id"]: line for line in lines if "id" in line}
    assert by_id["C2"]["message"] == "results/none.json does not exist"
    assert by_id["C3"]["message"] == "KeyError: 'missing' (check_it.py:13)"
    assert by_id["C5"]["award"] == 0.5
    assert by_id["C1"]["award"] is None
    assert by_id["invented"]["message"] == "row 7 is invented"


CRASHES = {
    "exit": "os._exit(0)",
    "segfault": "import faulthandler; faulthandler._sigsegv()",
    "kill": "os.kill(os.getpid(), 9)",
    "group": "os.killpg(0, 9)",
    "pytest exit": "pytest.exit('leaving')",
    "interrupt": "raise KeyboardInterrupt",
}


@pytest.mark.parametrize("crash", CRASHES.values(), ids=CRASHES)
def test_a_crash_costs_only_its_check(grade: Grade, crash: str) -> None:
    lines = grade(
        f"""
        @pytest.mark.checkpoint("C1")
        def check_before(): pass

        @pytest.mark.checkpoint("C2")
        def check_crash():
            {crash}

        @pytest.mark.checkpoint("C3")
        def check_after(): pass
        """
    )
    assert outcomes(lines) == {"check_before": "passed", "check_crash": "crashed", "check_after": "passed"}
    assert len(of_kind(lines, "collected")) == 1
    assert lines[-1] == {"kind": "end"}
    assert "process ended with" in of_kind(lines, "checkpoint")[1]["message"]


def test_a_python_loop_ends_at_its_alarm_even_if_it_catches_everything(grade: Grade) -> None:
    lines = grade(
        """
        @pytest.mark.checkpoint("C1")
        def check_loop():
            while True:
                try:
                    sum(range(1000))
                except Exception:
                    pass

        @pytest.mark.checkpoint("C2")
        def check_after(): pass
        """,
        seconds=0.5,
    )
    assert outcomes(lines) == {"check_loop": "timeout", "check_after": "passed"}
    assert of_kind(lines, "checkpoint")[0]["message"] == "did not finish within 0.5 s"


def test_a_check_stuck_with_its_alarm_blocked_is_killed(grade: Grade) -> None:
    lines = grade(
        """
        @pytest.mark.checkpoint("C1")
        def check_stuck():
            import signal, time
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
            time.sleep(600)

        @pytest.mark.checkpoint("C2")
        def check_after(): pass
        """,
        seconds=0.5,
    )
    assert outcomes(lines) == {"check_stuck": "timeout", "check_after": "passed"}


def test_only_selects_nodes(grade: Grade) -> None:
    source = """
        @pytest.mark.checkpoint("C1")
        def check_a(): pass

        @pytest.mark.checkpoint("C2")
        def check_b(): pass
        """
    lines = grade(source, only=["check_it.py::check_b"])
    assert outcomes(lines) == {"check_b": "passed"}
    assert [node["id"] for node in lines[0]["nodes"]] == ["C2"]


def test_planted_configuration_in_the_results_has_no_effect(grade: Grade) -> None:
    planted = {
        "conftest.py": b"raise SystemExit('planted')",
        "sitecustomize.py": b"raise SystemExit('planted')",
        "usercustomize.py": b"raise SystemExit('planted')",
        "pytest.ini": b"[pytest]\naddopts = --collect-only\n",
        "json.py": b"raise SystemExit('planted')",
        "check_planted.py": b"import pytest\n@pytest.mark.checkpoint('C1')\ndef check_x(): pass\n",
    }
    lines = grade(
        """
        import sys

        @pytest.mark.checkpoint("C1")
        def check_it(evidence):
            import json
            assert "evidence" not in json.__file__
            root = str(evidence.path("json.py").parent.parent.parent)
            assert not [p for p in sys.path if p in ("", ".") or p == root or "/evidence" in p]
            assert os.listdir(".") == []
        """,
        planted,
    )
    assert outcomes(lines) == {"check_it": "passed"}, lines


def test_output_of_a_check_forges_nothing(grade: Grade) -> None:
    lines = grade(
        r"""
        FORGED = '\n{"kind": "checkpoint", "id": "C1", "node": "x::y", "outcome": "passed", "award": null}\n'

        @pytest.mark.checkpoint("C1")
        def check_prints():
            import subprocess
            print(FORGED)
            for number in (1, 2):
                os.write(number, FORGED.encode())
            subprocess.run(["sh", "-c", "for n in 3 4 5 6 7 8 9; do echo '" + FORGED + "' >&$n; done"])
            assert False, FORGED
        """
    )
    assert outcomes(lines) == {"check_prints": "failed"}


def test_marks_that_do_not_say_one_thing_are_collection_errors(grade: Grade) -> None:
    lines = grade(
        """
        def check_bare(): pass

        @pytest.mark.cap("x")
        @pytest.mark.checkpoint("C1")
        def check_both(): pass

        @pytest.mark.checkpoint()
        def check_empty(): pass

        @pytest.mark.checkpoint("C2")
        def check_good(): pass
        """,
        extra={"check_broken.py": "import nothing_like_this"},
    )
    errors = {line["node"]: line["message"] for line in of_kind(lines, "collection_error")}
    assert errors["check_it.py::check_bare"].endswith("it has none")
    assert "exactly one" in errors["check_it.py::check_both"]
    assert "takes one text" in errors["check_it.py::check_empty"]
    assert "nothing_like_this" in errors["check_broken.py"]
    assert outcomes(lines) == {"check_good": "passed"}


def test_a_file_that_kills_collection_is_said(grade: Grade) -> None:
    lines = grade("os._exit(3)")
    assert [line["kind"] for line in lines] == ["collection_error", "end"]
    assert "exit status 3" in lines[0]["message"]


def test_messages_are_bounded_valid_and_on_one_line(grade: Grade) -> None:
    lines = grade(
        r"""
        @pytest.mark.checkpoint("C1")
        def check_it():
            assert False, "\ud800 bad\x00\x1b[31m\nnext " + "x" * 10000
        """
    )
    message = of_kind(lines, "checkpoint")[0]["message"]
    assert message.startswith("? bad [31m next xxx")
    assert len(message) == 500
    message.encode("utf-8")


def test_integrity_and_wrong_awards(grade: Grade) -> None:
    lines = grade(
        """
        @pytest.mark.checkpoint("C1")
        def check_tampering(evidence):
            evidence.violation("the answer file was replaced")

        @pytest.mark.checkpoint("C2")
        def check_too_much(evidence):
            evidence.award(1.5)

        @pytest.mark.checkpoint("C3")
        def check_fails_after_award(evidence):
            evidence.award(0.5)
            assert False, "no"

        @pytest.mark.cap("x")
        def check_cap(evidence):
            evidence.award(0.5)
        """
    )
    assert [line["message"] for line in of_kind(lines, "integrity")] == ["the answer file was replaced"]
    results = {line["id"]: (line["outcome"], line["award"]) for line in lines if "id" in line}
    assert results == {"C1": ("passed", None), "C2": ("error", None), "C3": ("failed", None), "x": ("error", None)}


def test_a_program_that_a_check_runs_decides_no_other_check(grade: Grade) -> None:
    """Root may open the pipe of another process, an ordinary account may not."""
    forger = b"""
import glob, json, os
for path in glob.glob(f"/proc/{os.getppid()}/fd/*"):
    if os.readlink(path).startswith("pipe:") and os.access(path, os.W_OK):
        line = {"kind": "checkpoint", "id": "C2", "node": "check_it.py::check_fails", "outcome": "passed"}
        with open(path, "wb", 0) as pipe:
            pipe.write(json.dumps(line | {"award": None, "message": ""}).encode() + b"\\n")
"""
    lines = grade(
        """
        import subprocess, sys

        @pytest.mark.checkpoint("C1")
        def check_runs_it(evidence):
            subprocess.run([sys.executable, evidence.path("solve.py")], stderr=subprocess.DEVNULL, close_fds=False)

        @pytest.mark.checkpoint("C2")
        def check_fails():
            assert False, "no"
        """,
        {"solve.py": forger},
    )
    assert outcomes(lines) == {"check_runs_it": "passed", "check_fails": "failed"}
    noted = [line["message"] for line in of_kind(lines, "integrity")]
    assert noted == ["the result of another check was reported while this one ran"] * (os.geteuid() == 0)


def test_checks_may_share_a_helper_module_and_fixtures(grade: Grade) -> None:
    lines = grade(
        """
        from helper import VALUE

        @pytest.fixture
        def report(evidence):
            return evidence.text("report.md")

        @pytest.mark.checkpoint("C1")
        def check_it(report):
            assert VALUE in report
        """,
        extra={"helper.py": "VALUE = 'x'"},
    )
    assert outcomes(lines) == {"check_it": "failed"}
    assert of_kind(lines, "checkpoint")[0]["message"] == "results/report.md does not exist"
