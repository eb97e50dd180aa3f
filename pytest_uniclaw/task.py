"""The Task value, and how one is made of a YAML file and its injection folder (design.md section 6).

Loading reads the YAML, ``.privacy`` and directory entries only: never a hidden file, never a large one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_uniclaw.assets import check_declared
from pytest_uniclaw.extension import Extension, ServiceExtension, memory_bytes
from pytest_uniclaw.privacy import read_keys
from pytest_uniclaw.schema import CodexYaml, RoleSettings, ServiceYaml, TaskYaml, validate
from pytest_uniclaw.yamlsource import YamlSource, read_yaml

SNAPSHOT_KEY = "SNAPSHOT_MODE"
"""The `.privacy` name that declares a task to have an offline variant."""
_LONG_CONTEXT = re.compile(r"[12]03(_|$)")
_GUI_SKILLS = frozenset({"desktop-control", "linux-gui-control"})
_BROWSER_SKILLS = frozenset({"agent-browser", "agent-browser-control"})
_CJK = re.compile(r"[\u3400-\u9fff]")


@dataclass(frozen=True, slots=True)
class Service:
    """One program that the sandbox runs beside the executor."""

    name: str
    path: str
    """Folder below ``services/`` of the package."""
    start: str
    """Shell command, run in the service's folder."""
    oneshot: bool
    """True: run to its end before the executor starts. False: keeps running in the background."""
    user: Literal["root", "service"] = "root"
    ready: str | None = None
    """Command that exits 0 once a background service answers."""
    ready_seconds: int = 60
    export: tuple[tuple[str, str], ...] = ()
    """(file under ``state/``, command whose stdout fills it) pairs, run after each turn."""


@dataclass(frozen=True)
class Task:
    """One task package: immutable, picklable, made by :func:`load_task`.

    It names the package's folder but holds nothing hidden: the content of ``references/``, ``oracle/`` and
    ``script/`` is reached through :func:`pytest_uniclaw.package.open_hidden` by its one reader.
    """

    path: Path
    """The YAML file, absolute."""
    folder: Path
    """The package's injection folder, absolute."""
    task_id: str
    category: str
    """Name of the suite folder, such as ``104_multimodal``."""
    prompt: str
    """The user's request (YAML ``task``)."""
    snapshot_prompt: str
    """The request of the offline variant; empty when there is none."""
    agent_sys: str
    agent_id: str
    model: str
    image_model: str
    turn_seconds: int
    """Executor seconds one turn may take (YAML ``timeout_seconds``)."""
    total_seconds: int
    """Executor seconds all turns may take together (YAML ``max_total_seconds``)."""
    threshold: float
    """Score in (0, 1] from which the attempt passes (YAML ``success_threshold``)."""
    references: tuple[str, ...]
    """Declared paths in the package, each beginning with ``references/``; the supervisor sees the whole folder."""
    sources: tuple[str, ...]
    """Declared names below ``sources/``; the executor gets the whole folder."""
    skills: tuple[str, ...]
    services: tuple[Service, ...]
    pre_exec: tuple[str, ...]
    """Host-side scripts of the package, run before the sandbox is made, in a private copy."""
    pre_exec_parallel_safe: bool
    followups: int
    """User messages that may follow the first."""
    supervisor: RoleSettings
    user_simulator: RoleSettings
    recording: Literal["none", "low", "high"]
    headed: bool | None
    """Whether a visible browser is wanted; None = decided by ``gui``."""
    network: Literal["isolated", "internet"]
    user: Literal["agent", "root"]
    memory: str | None
    """Memory limit such as ``2g``; None = the sandbox's default."""
    cpus: float | None
    local: bool
    """Whether the task may run in the local sandbox."""
    tags: tuple[str, ...]
    privacy: tuple[str, ...]
    """Names (never values) that the package's ``.privacy`` declares."""

    @property
    def suite(self) -> str:
        """Leading digits of the category: ``104``; empty when it has none."""
        match = re.match(r"\d+", self.category)
        return match[0] if match else ""

    @property
    def capability(self) -> str:
        """``skill_usage``, ``exploration``, ``long_context``, ``multimodal``, ``cross_platform``, or a suite's own."""
        return re.sub(r"^\d+_", "", self.category).removesuffix("_zh")

    @property
    def language(self) -> Literal["en", "zh"]:
        """By the category (``10x``, ``20x``, ``*_zh``), else by the script that most of the prompt is written in."""
        if re.match(r"20\d(_|$)", self.category) or self.category.endswith("_zh"):
            return "zh"
        if re.match(r"10\d(_|$)", self.category):
            return "en"
        words = len(re.findall(r"[A-Za-z]+", self.prompt))
        return "zh" if len(_CJK.findall(self.prompt)) > words else "en"

    @property
    def memory_bytes(self) -> int | None:
        """The memory limit in bytes."""
        return memory_bytes(self.memory) if self.memory else None

    @property
    def needs_network(self) -> bool:
        """Whether the executor gets the internet."""
        return self.network == "internet"

    @property
    def has_snapshot(self) -> bool:
        """Whether SNAPSHOT_MODE changes what the task needs."""
        return SNAPSHOT_KEY in self.privacy

    @property
    def gui(self) -> bool:
        """Whether the executor works on the virtual desktop."""
        wanted = self.recording == "high" or "gui" in self.tags or not _GUI_SKILLS.isdisjoint(self.skills)
        return self.headed if self.headed is not None else wanted or self._upstream_desktop

    @property
    def browser(self) -> bool:
        """Whether the task says that its executor works in a browser; without ``gui`` that is a headless one."""
        return "browser" in self.tags or not _BROWSER_SKILLS.isdisjoint(self.skills)

    @property
    def _upstream_desktop(self) -> bool:
        return self.capability == "cross_platform" and self.needs_network


@dataclass(frozen=True, slots=True)
class Variant:
    """A task as this session runs it; executor, supervisor and user simulator all get the same ``prompt``."""

    prompt: str
    privacy_keys: tuple[str, ...]
    """Names whose values the sandbox needs."""
    excluded_sources: tuple[str, ...]
    """Names at the top of ``sources/`` that must not reach the sandbox."""
    environment: tuple[tuple[str, str], ...] = ()
    """Fixed variables of the sandbox, such as ``("SNAPSHOT_MODE", "1")``."""


@dataclass(frozen=True, slots=True)
class PublicView:
    """What a user would see of a task: the only view of it that the user simulator and the rewriter get."""

    task_id: str
    prompt: str
    language: Literal["en", "zh"]
    skills: tuple[str, ...]
    sources: tuple[str, ...]


def load_task(path: Path, *, injection: Path | None = None, check_assets: bool = True) -> Task:
    """Read one task file and find its package.

    ``injection`` is a folder that holds ``<category>/<task_id>/``; without it the nearest ``injection/`` above the
    file that has this task is taken. ``check_assets=False`` skips the look for declared files. Raises TaskError.
    """
    source = read_yaml(path)
    fields = validate(source)
    folder = _find_folder(source, fields, injection)
    task = _build(source, fields, folder)
    if check_assets:
        check_declared(source, fields, folder)
    return task


def resolve_variant(task: Task, snapshot_mode: bool) -> Variant:
    """Choose prompt, privacy names and withheld sources by SNAPSHOT_MODE (upstream-contract section 1.4)."""
    if not task.has_snapshot:
        return Variant(task.prompt, task.privacy, ())
    if snapshot_mode:
        return Variant(task.snapshot_prompt or task.prompt, (), (), ((SNAPSHOT_KEY, "1"),))
    keys = tuple(key for key in task.privacy if key != SNAPSHOT_KEY)
    withheld = tuple(sorted(entry.name for entry in (task.folder / "sources").glob("*_snapshot.json")))
    return Variant(task.prompt, keys, withheld, ((SNAPSHOT_KEY, "0"),))


def public_view(task: Task, variant: Variant) -> PublicView:
    """The view of a task that may be shown to whoever plays the user."""
    sources = tuple(name for name in task.sources if name not in variant.excluded_sources)
    return PublicView(task.task_id, variant.prompt, task.language, task.skills, sources)


def _find_folder(source: YamlSource, fields: TaskYaml, injection: Path | None) -> Path:
    wanted = Path(fields.category, fields.task_id)
    start = source.path.absolute()
    roots = [injection.absolute()] if injection else [parent / "injection" for parent in start.parents]
    for root in roots:
        if (root / wanted).is_dir():
            return root / wanted
    if injection is None:
        where = f"no folder injection/{wanted} in {start.parent} or any folder above it"
    else:
        where = f"no folder {wanted} in {roots[0]}"
    near = [root for root in roots if root.is_dir()]
    there = [found for root in near for found in sorted(root.glob(f"*/{fields.task_id}")) if found.is_dir()]
    if there:
        raise source.error(where, ("category",), remedy=f"write `category: {there[0].parent.name}`, or move {there[0]}")
    remedy = f"make {(near or roots)[0] / wanted}, or correct `category` and `task_id`"
    known = [root / fields.category for root in near if (root / fields.category).is_dir()]
    raise source.error(where, ("task_id",) if known or not near else ("category",), remedy=remedy)


def _build(source: YamlSource, fields: TaskYaml, folder: Path) -> Task:
    codex = fields.codex or CodexYaml()
    extension = fields.uniclaw
    turn, total = (1800, 2700) if _LONG_CONTEXT.match(fields.category) else (1200, 1800)
    return Task(
        path=source.path.absolute(), folder=folder, task_id=fields.task_id, category=fields.category,
        prompt=fields.task, snapshot_prompt=fields.task_snapshot.strip(), agent_sys=fields.agent_sys,
        agent_id=fields.agent_id, model=fields.model, image_model=fields.image_model,
        turn_seconds=fields.timeout_seconds or turn, total_seconds=fields.max_total_seconds or total,
        threshold=fields.success_threshold, references=fields.references, sources=fields.sources,
        skills=_unique(source, "skills", fields.skills), services=_services(source, fields.services, extension),
        pre_exec=fields.pre_exec, pre_exec_parallel_safe=fields.pre_exec_parallel_safe,
        followups=codex.max_user_followups, supervisor=codex.supervisor, user_simulator=codex.user_simulator,
        recording=fields.recording, headed=fields.headed, network=extension.network, user=extension.user,
        memory=extension.memory, cpus=extension.cpus, local=extension.local, tags=extension.tags,
        privacy=read_keys(folder / ".privacy"),
    )  # fmt: skip


def _unique(source: YamlSource, field: str, names: tuple[str, ...]) -> tuple[str, ...]:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise source.error(f"{name!r} is listed twice", (field, index), remedy="keep one")
    return names


def _services(source: YamlSource, listed: tuple[ServiceYaml, ...], extension: Extension) -> tuple[Service, ...]:
    names = tuple(service.name for service in listed)
    _unique(source, "services", names)
    for name, extra in extension.services.items():
        where = ("uniclaw", "services", name)
        if name not in names:
            remedy = f"declared services: {', '.join(names) or 'none'}"
            raise source.error("is not declared in `services:`", where, remedy=remedy)
        if extra.ready and listed[names.index(name)].oneshot:
            remedy = "a one-shot service is ready when it ends; remove `ready`"
            raise source.error("applies to background services only", (*where, "ready"), remedy=remedy)
    return tuple(_service(service, extension.services) for service in listed)


def _service(service: ServiceYaml, extras: Mapping[str, ServiceExtension]) -> Service:
    extra = extras.get(service.name) or ServiceExtension()
    return Service(
        name=service.name, path=service.path or service.name, start=service.start, oneshot=service.oneshot,
        user=extra.user, ready=extra.ready, ready_seconds=extra.ready_seconds, export=tuple(extra.export.items()),
    )  # fmt: skip
