"""`uniclaw doctor`: what it says of an engine that is not there, and of keys that nobody needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_uniclaw import cli, doctor
from pytest_uniclaw.doctor import Finding, engine_finding
from pytest_uniclaw.sandbox.engine_setup import EngineFacts, plan_engine
from pytest_uniclaw.settings import ProviderSettings, Settings

REFUSED = "Connection refused"


@pytest.mark.parametrize(
    ("facts", "remedy"),
    [
        (EngineFacts("", REFUSED, root=True, dockerd=True, systemd=True), "systemctl start docker"),
        (EngineFacts("", REFUSED, root=True, dockerd=True), "make setup"),
        (EngineFacts("", REFUSED, root=True, debian=True), "apt-get install docker.io"),
        (EngineFacts("", REFUSED, dockerd=True), "sudo systemctl start docker"),
        (EngineFacts("", REFUSED), "install Docker"),
        (EngineFacts("", "Permission denied", dockerd=True), "usermod -aG docker"),
        (EngineFacts("", REFUSED, elsewhere=True), "unset DOCKER_HOST"),
        (EngineFacts("19.03"), "up to date"),
    ],
)
def test_an_engine_that_is_not_there_has_a_remedy_that_helps(facts: EngineFacts, remedy: str) -> None:
    finding = engine_finding(plan_engine(facts), "the engine's API is too old")
    assert (finding.subject, finding.kind) == ("engine", "MISS")
    assert remedy in finding.remedy
    assert "doctor" not in f"{finding.text} {finding.remedy}"


def test_a_key_that_is_not_set_is_an_information(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(
        providers=(ProviderSettings("local", "http://127.0.0.1:9/v1", ""),), missing_keys={"other": "SOME_KEY"}
    )
    monkeypatch.setattr(cli, "resolve", lambda *_: settings)
    monkeypatch.delenv("UNICLAW_EDICT_SRC", raising=False)
    monkeypatch.setattr(doctor, "_engine", lambda: iter([Finding("engine", "ok", "a Docker engine answers")]))
    monkeypatch.setattr(doctor, "LEAST_DISK", 0)
    monkeypatch.setattr(doctor, "LEAST_MEMORY", 0)
    assert cli.main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[:5] == [
        "ok   engine: a Docker engine answers",
        "info edict: UNICLAW_EDICT_SRC is not set, so openclaw_edict cannot run (scripts/fetch-edict)",
        "ok   model: the scripted model is built in (--model=script)",
        "ok   model: provider local at http://127.0.0.1:9/v1",
        "info model: SOME_KEY is not set, so the models of that provider are not offered",
    ]
    assert "fix:" not in said


def test_what_is_missing_is_exit_1_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "_engine", lambda: iter([Finding("engine", "MISS", "none", "start it")]))
    assert cli.main(["doctor"]) == 1
    assert capsys.readouterr().out.startswith("MISS engine: none\n     fix: start it\n")


def test_the_source_of_edict_is_right_or_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNICLAW_EDICT_SRC", str(tmp_path))
    finding = doctor._edict()
    assert finding.kind == "MISS"
    assert finding.text.startswith(f"UNICLAW_EDICT_SRC={tmp_path}: agents, ")
    assert finding.remedy.startswith("scripts/fetch-edict")
    monkeypatch.setattr(doctor, "load_edict", lambda _: None)
    assert doctor._edict() == Finding("edict", "ok", f"the pinned commit is in {tmp_path}")
