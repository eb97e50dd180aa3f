"""The Docker sandbox: one fresh container per attempt, another for its checks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_uniclaw.attempt import Ending, Manifest
from pytest_uniclaw.errors import EngineError, InfraError, SettingsError
from pytest_uniclaw.paths import USER_IDS, paths_for
from pytest_uniclaw.sandbox import provision
from pytest_uniclaw.sandbox.archive import pack
from pytest_uniclaw.sandbox.base import (
    CollectLimits,
    Completed,
    Entry,
    GradingJob,
    GradingOutput,
    Pulse,
    Sandbox,
    SandboxSpec,
    TurnLimits,
    Vitals,
    Workspace,
    WorkspaceJob,
)
from pytest_uniclaw.sandbox.blame import blame
from pytest_uniclaw.sandbox.disk import DiskGuard, guard
from pytest_uniclaw.sandbox.engine import (
    Container,
    calls,
    connected,
    failures,
    image_reference,
    is_missing,
    new_name,
    removed_at_end,
)
from pytest_uniclaw.sandbox.exec import detach as detached
from pytest_uniclaw.sandbox.exec import follow, prepare, started
from pytest_uniclaw.sandbox.fetch import account_trap, fetch
from pytest_uniclaw.sandbox.freeze import Sweeper, frozen, kill
from pytest_uniclaw.sandbox.grading import run_job
from pytest_uniclaw.sandbox.image_spec import IMAGE_LABEL, image_tag
from pytest_uniclaw.sandbox.stream import HeadAndTail
from pytest_uniclaw.sandbox.turn import run_turn
from pytest_uniclaw.sandbox.workspace import DockerWorkspace, start_workspace

if TYPE_CHECKING:
    from docker import APIClient

HOST_GRACE_SECONDS = 10.0
"""How much longer than the bound inside the container the host waits for a command."""
TIMEOUT_CODES = (124, 137)
RUN_TICK_SECONDS = 1.0


class DockerSandbox:
    """A running container, as :class:`~pytest_uniclaw.sandbox.base.Sandbox` describes it."""

    def __init__(self, container: Container, spec: SandboxSpec, disk_floor: int | None) -> None:
        self.container, self.paths = container, paths_for(spec.user)
        self.user: str = spec.user
        self._disk_floor = disk_floor
        self._turned = False
        self._unwritten = provision.skeleton(self.paths, self.user)
        self._sweeper = Sweeper(container, USER_IDS[spec.user] or None, self._run_as_root)

    def put(self, entries: Iterable[Entry]) -> None:
        """Write files; the first archive carries the workspace's folders too."""
        above = self.paths.logs.rsplit("/", 1)[0]
        homes = (self.paths.home, self.paths.workspace)
        given = [*self._unwritten, *entries]
        with self._blaming([entry.path for entry in given]):
            archive = pack(given, executor=self.user, homes=homes, fixed=(above,))
            with archive, self.container.calls("write files"):
                self.container.api.put_archive(self.container.name, "/", archive)
        self._unwritten = []

    def run(
        self, command: Sequence[str], *, user: str = "root", cwd: str | None = None,
        environment: Mapping[str, str] | None = None, seconds: float = 60.0, detach: bool = False,
    ) -> Completed:
        """Run a harness command, bounded inside the container and once more from outside."""
        self._make_workspace()
        self._refuse_trap()
        number, folder = provision.exec_user(user), cwd or self.paths.workspace
        variables = provision.visible(environment, provision.home_of(user, self.paths, self.user))
        began = time.monotonic()
        if detach:
            with self._blaming():
                detached(self.container, command, user=number, cwd=folder, environment=variables)
            return Completed(Ending.EXITED, None, b"", time.monotonic() - began)
        bounded = ["/usr/bin/timeout", "-k", "2", f"{seconds:.3f}", *command]
        last = began + seconds + HOST_GRACE_SECONDS
        output = HeadAndTail()
        with self._blaming():
            prepared = prepare(self.container, bounded, user=number, cwd=folder, environment=variables, guarded=True)
            with started(prepared) as running:
                tick = min(RUN_TICK_SECONDS, seconds)
                ending = follow(running, output.write, lambda now, _: Ending.DEADLINE if now > last else None, tick)
                code = running.exit_code() if ending is Ending.EXITED else None
        taken = time.monotonic() - began
        if code in TIMEOUT_CODES and taken >= seconds:
            ending = Ending.DEADLINE
        return Completed(ending, code, output.value(), taken)

    def keep(self) -> None:
        """Record every process that runs now as the service set."""
        self._sweeper.keep()

    def turn(
        self, command: Sequence[str], *, environment: Mapping[str, str], limits: TurnLimits,
        pulse: Callable[[], Pulse], log: Path,
    ) -> Completed:
        """Run the executor's command as its user, watched."""
        self._make_workspace()
        self._refuse_trap()
        if self._turned:  # what an earlier turn left running may have filled the disk
            self._disk.check()
        self._turned = True
        return run_turn(
            self.container, command, user=provision.exec_user(self.user), cwd=self.paths.workspace,
            environment=provision.visible(environment, self.paths.home), limits=limits, pulse=pulse,
            guard=self._disk.check, sweep=self.sweep, log=log,
        )

    def sweep(self) -> None:
        """Kill every process outside the service set."""
        self._sweeper.sweep()

    def collect(self, folders: Mapping[str, Path], limits: CollectLimits) -> Mapping[str, Manifest]:
        """Bring folders out of the frozen container."""
        self._make_workspace()
        self._disk.check()
        end = time.monotonic() + limits.seconds
        with self._blaming(), frozen(self.container):
            trap = account_trap(self.container) if self.user == "root" else None
            manifests = {
                path: Manifest(refused=(trap,), refused_total=1) if trap
                else fetch(self.container, path, destination, limits, end, self._replaceable(path))
                for path, destination in folders.items()
            }
        self._disk.check()
        return manifests

    def retain(self) -> str:
        """Leave the container to the user; its deadline label still ends it one day."""
        self.container.retained = True
        return f"docker exec -it -u {self.user} {self.container.name} bash"

    def vitals(self) -> Vitals:
        """Ask the engine how the container is."""
        record = self.container.state()
        if record is None:
            return Vitals(running=False)
        running = bool(record["State"]["Running"])
        code = None if running else int(record["State"]["ExitCode"])
        return Vitals(running, self.container.out_of_memory(record), code)

    @contextmanager
    def _blaming(self, paths: Iterable[str] = ()) -> Iterator[None]:
        """Raise SandboxLost for a failure that the executor brought about, once its first turn has begun."""
        try:
            yield
        except (InfraError, OSError):
            if self._turned:
                blame(self.container, self._disk.check, paths)
            raise

    def _refuse_trap(self) -> None:
        """Kill the sandbox of a root executor that has set the engine a trap: no command would start in it any more."""
        if self._turned and self.user == "root" and (trap := account_trap(self.container)):
            raise kill(self.container, f"{trap.path} is {trap.reason}, so its sandbox was killed")

    def _make_workspace(self) -> None:
        if self._unwritten:
            self.put(())

    def _run_as_root(self, command: Sequence[str], seconds: float) -> Completed:
        return self.run(command, seconds=seconds)

    @cached_property
    def _disk(self) -> DiskGuard:
        return guard(self.container, self._disk_floor)

    def _replaceable(self, path: str) -> list[str]:
        """Return the folders above a path that an unprivileged executor could have swapped for a link."""
        fixed = {self.paths.home, self.paths.workspace, self.paths.logs.rsplit("/", 1)[0]}
        above = [str(parent) for parent in reversed(Path(path).parents)]
        inside = [p for p in above if p.startswith((f"{self.paths.home}/", f"{self.paths.workspace}/"))]
        return [] if self.user == "root" else [p for p in inside if p not in fixed]


@dataclass(frozen=True)
class DockerProvider:
    """Sandboxes in a Docker engine.

    ``base_url`` names the engine, None the one the docker command uses. ``disk_floor`` is the free space in bytes
    that the engine's disk must keep, None for 2 GiB (a tenth of a smaller disk).
    """

    name: str = "docker"
    trusted_only: bool = False
    base_url: str | None = None
    disk_floor: int | None = None

    @contextmanager
    def open(self, spec: SandboxSpec) -> Iterator[Sandbox]:
        """Provision a sandbox; on exit its container is removed, whatever happened.

        Raises:
            EngineError: there is no engine, no such image, or the engine refused.
        """
        with connected(self.base_url) as api, removed_at_end(Container(api, new_name(spec.owner.run))) as container:
            provision.create(container, spec)
            yield DockerSandbox(container, spec, self.disk_floor)

    def grade(self, job: GradingJob) -> GradingOutput:
        """Run the checks of a job in a fresh container. Raises EngineError."""
        with connected(self.base_url) as api, removed_at_end(Container(api, new_name(job.owner.run))) as container:
            return run_job(container, job)

    @contextmanager
    def open_workspace(self, job: WorkspaceJob) -> Iterator[Workspace]:
        """Open a workspace in a fresh container; on exit it is removed. Raises TaskError, OSError, EngineError."""
        with connected(self.base_url) as api, removed_at_end(Container(api, new_name(job.owner.run))) as container:
            start_workspace(container, job)
            yield DockerWorkspace(container, job)

    def check(self, images: Sequence[str]) -> None:
        """Raise SettingsError, with the remedy: no engine or one without cgroups, an image missing or not on ours."""
        try:
            with connected(self.base_url) as api, calls("describe itself"):
                bare = api.info().get("CgroupDriver") == "none"
                labels = {image: image_labels(api, image) for image in images}
        except EngineError as error:
            raise SettingsError(f"{error}\n  fix: start Docker, or see `uniclaw doctor`") from error
        if bare:
            raise SettingsError(
                "this engine has no cgroups, so a sandbox has no limits and cannot be frozen\n"
                "  fix: boot with cgroup v2, which a rootless engine needs, or use one that runs as root"
            )
        if missing := [image for image, found in labels.items() if found is None]:
            ours = [image for image in missing if ":" not in image and "/" not in image]
            way = f"run `uniclaw images build {' '.join(ours)}`" if ours else "build it, or pull it"
            raise SettingsError(f"missing image(s): {', '.join(missing)}\n  fix: {way}")
        if strange := [image for image, found in labels.items() if IMAGE_LABEL not in (found or {})]:
            raise SettingsError(
                f"image(s) not built on ours: {', '.join(strange)}; PID 1 of a sandbox and its tools are in ours\n"
                f"  fix: build with FROM $(uniclaw images tag runtime), which is {image_tag('runtime')} now"
            )

    def digest(self, image: str) -> str:
        """Return the engine's content address of an image. Raises EngineError."""
        reference = image_reference(image)
        with connected(self.base_url) as api, calls(f"find the image {reference}"):
            return str(image_record(api, reference)["Id"])


def image_labels(api: APIClient, image: str) -> dict[str, str] | None:
    """Return an image's labels, its ancestors' included; None where the engine lacks the image. Raises EngineError."""
    reference = image_reference(image)
    try:
        record = image_record(api, reference)
    except failures() as error:
        if is_missing(error):
            return None
        raise EngineError(f"the container engine does not answer: {error}") from error
    return (record.get("Config") or {}).get("Labels") or {}


def image_record(api: APIClient, reference: str) -> dict[str, Any]:
    """Return the engine's record of an image."""
    record: dict[str, Any] = api.inspect_image(reference)  # type: ignore[no-untyped-call]
    return record


__all__ = ["DockerProvider", "DockerSandbox"]
