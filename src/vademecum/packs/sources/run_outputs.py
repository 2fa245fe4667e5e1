"""A skill among the outputs of a run → its files, as the record lists them."""

from __future__ import annotations

import shutil
from pathlib import Path

from vademecum.context import Context
from vademecum.errors import FileRefused, IntegrityFailed, PackRefused
from vademecum.files import sha256_of
from vademecum.packs.sources.entry_names import NameCheck, skill_places
from vademecum.runs.record import runs_directory
from vademecum.runs.stored import RunOutput, outputs_of, read_run


def fetch_from_run(context: Context, name: str, aside: Path) -> str:
    """Copy the skill ``RUN_ID/NAME`` below ``aside``: the outputs of the run in a directory of that name."""
    run_id, _, wanted = name.partition("/")
    run = read_run(runs_directory(context), run_id)
    # A file that a later call changed counts as it was at the end.
    outputs = {each.path: each for event in run.events for each in outputs_of(event, run.place)}
    places = skill_places(outputs)
    found = [place for place in places if wanted and wanted in {place, place.rpartition("/")[2]}]
    if len(found) != 1:
        listed = ", ".join(f"run:{run_id}/{place}" for place in places) or "it has none"
        raise PackRefused(
            f"The run {run_id} has no skill {wanted!r} among its outputs: {listed}.", code="missing"
        )
    names = NameCheck()
    for path, output in outputs.items():
        if path.startswith(f"{found[0]}/"):
            _copy(output, aside / wanted / names.file(path)[len(found[0]) + 1 :])
    return ""


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
