"""Where things lie inside a sandbox; prompts and adapters take every path from here, never from a literal."""

from __future__ import annotations

from dataclasses import dataclass

USER_IDS = {"root": 0, "agent": 1000, "service": 999}
"""Numeric ids of the accounts in our images."""


@dataclass(frozen=True)
class SandboxPaths:
    """Absolute POSIX paths inside the sandbox, for one executor account.

    The workspace layout is upstream's, so its prompts hold unchanged; ``home`` follows the account.
    """

    home: str
    workspace: str = "/tmp_workspace"
    private: str = "/opt/uniclaw"

    @property
    def results(self) -> str:
        """The folder whose content is the deliverable."""
        return f"{self.workspace}/results"

    @property
    def sources(self) -> str:
        """The task's inputs."""
        return f"{self.workspace}/clawbench/sources"

    @property
    def logs(self) -> str:
        """What services and the agent print."""
        return f"{self.workspace}/clawbench/logs"

    @property
    def skills(self) -> str:
        """One folder per skill, each with a ``SKILL.md``."""
        return f"{self.home}/skills"

    def service(self, name: str) -> str:
        """The root-only folder of one service."""
        return f"{self.private}/services/{name}"


def scratch_prefix(run: str) -> str:
    """Return how the names of a run's temporary folders on the host begin; the reaper removes what bears them.

    The point ends the run's id: that of a continued run goes on with a hyphen.
    """
    return f"uniclaw-{run}."


def paths_for(user: str) -> SandboxPaths:
    """Return the paths of an executor account, ``agent`` or ``root``."""
    return SandboxPaths(home="/root" if user == "root" else f"/home/{user}")
