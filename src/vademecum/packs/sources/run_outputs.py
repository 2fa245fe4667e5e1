"""A skill that an agent wrote in a run → its files, as the record lists them."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from vademecum.context import Context
from vademecum.errors import FileRefused, IntegrityFailed, PackRefused
from vademecum.files import sha256_of
from vademecum.packs.content import files_of, strays_in
from vademecum.packs.sources.entry_names import NameCheck, skill_places
from vademecum.runs.record import Event, runs_directory
from vademecum.runs.stored import RunOutput, outputs_of, read_run


class _Asked(msgspec.Struct):
    permission: str
    resources: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class _Call(msgspec.Struct):
    """The facts of a call in the record: whether it went well, what it changed, and the new file's digest."""

    ok: bool = False
    asked: tuple[_Asked, ...] = ()
    hashes: dict[str, str] = {}


def fetch_from_run(context: Context, name: str, aside: Path) -> str:
    """Copy the skill ``RUN_ID/NAME`` below ``aside``: what the run made in a directory of that name.

    It is looked for among the outputs of the run first, then among the files it wrote into the project.
    """
    run_id, _, wanted = name.partition("/")
    run = read_run(runs_directory(context), run_id)
    project = (context.project_directories() or [context.cwd])[-1]
    # A file that a later call changed counts as it was at the end.
    outputs = {each.path: each for event in run.events for each in outputs_of(event, run.place)}
    known = []
    for files in (outputs, _written(run.events, project)):
        places = skill_places(files)
        found = [place for place in places if wanted and wanted in {place, place.rpartition("/")[2]}]
        if len(found) == 1:
            _copy_all(files, found[0], aside / wanted)
            if files is not outputs:
                _refuse_strays(project / found[0], aside / wanted, context)
            return ""
        known += [f"run:{run_id}/{place}" for place in places]
    listed = ", ".join(known) or "it made none"
    raise PackRefused(f"The run {run_id} made no skill {wanted!r}: {listed}.", code="missing")


def _written(events: Iterable[Event], project: Path) -> dict[str, RunOutput]:
    """Return the files that a run wrote in the project, by the names that rules have for them."""
    found: dict[str, RunOutput] = {}
    for event in events:
        with contextlib.suppress(msgspec.ValidationError):
            call = msgspec.convert(event.data, type=_Call)
            digest = call.hashes.get("sha256")
            changes = [each for each in call.asked if call.ok and each.permission in {"write", "delete"}]
            for path in (each.resources[0] for each in changes):
                found.pop(path, None)
                if digest and not path.startswith("/"):
                    found[path] = RunOutput(path, str(project / path), 0, digest)
    return found


def _refuse_strays(place: Path, copied: Path, context: Context) -> None:
    strays = strays_in(place, files_of(copied, every=True))
    if strays:
        raise PackRefused(
            f"{strays[0]!r} in {place} was not written by the run: nothing was installed. "
            f"To take the whole directory: vade install {os.path.relpath(place, context.cwd)}"
        )


def _copy_all(files: Mapping[str, RunOutput], place: str, target: Path) -> None:
    names = NameCheck()
    for path, output in files.items():
        if path.startswith(f"{place}/"):
            _copy(output, target / names.file(path)[len(place) + 1 :])


def _copy(output: RunOutput, target: Path) -> None:
    if output.secret:
        raise PackRefused(f"{output.path!r} contains the value of a secret: nothing was installed.")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copyfile(output.file, target, follow_symlinks=False)
        same = sha256_of(target) == output.sha256
    except (OSError, FileRefused) as error:
        raise PackRefused(f"{output.path!r} cannot be read ({error}): nothing was installed.") from error
    if not same:
        raise IntegrityFailed(f"{output.path!r} was changed since the run: nothing was installed.")
