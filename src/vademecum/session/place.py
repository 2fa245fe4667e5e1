"""Where a session works: its directories, settings and secrets, read once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vademecum.config import Config, load_config
from vademecum.context import Context
from vademecum.masking import Secrets
from vademecum.policy.grants import grants_file
from vademecum.tools.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Place:
    """One working directory: the project around it, its configuration, and what must not be written down."""

    context: Context
    config: Config
    project: Path
    workspace: Workspace
    secrets: Secrets

    @classmethod
    def at(cls, context: Context | None = None, *, reachable: tuple[Path, ...] = ()) -> Place:
        """Return the place of a context; ``reachable`` are directories outside it that a person named."""
        context = context or Context.current()
        project = project_of(context)
        workspace = Workspace(context.cwd, *reachable, project=project)
        config = load_config(context).settings
        secrets = Secrets(context.env, given=config.execution.environment)
        return cls(context, config, project, workspace, secrets)

    @property
    def grants(self) -> Path:
        """The file that remembers the user's answers."""
        return grants_file(self.context)


def project_of(context: Context) -> Path:
    """Return the outermost directory of the project."""
    return (context.project_directories() or [context.cwd])[-1]
