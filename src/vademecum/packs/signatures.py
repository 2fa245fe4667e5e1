"""Who signed a skill that is about to be installed, and whether that is good enough."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import structs

from vademecum.errors import IntegrityFailed
from vademecum.files import read_capped
from vademecum.packs.content import SkillFile
from vademecum.packs.keys import Trusted
from vademecum.packs.oms import oms_signer
from vademecum.packs.signing import (
    MAX_SIGNATURE_BYTES,
    OMS_SIGNATURE,
    SIGNATURE,
    SIGNATURES,
    Signer,
    signer_of,
)
from vademecum.packs.staging import Staged


def pack_signer(signature: bytes | None, staged: Sequence[Staged], trusted: Trusted) -> Signer | None:
    """Who signed a whole pack, every file in it."""
    if signature is None:
        return None
    return signer_of(signature, named_files(staged), trusted, place="beside the pack")


def named_files(staged: Sequence[Staged]) -> list[SkillFile]:
    """All files of a pack, as they are named in it."""
    return [
        structs.replace(file, path=f"{skill.inside}/{file.path}" if skill.inside else file.path)
        for skill in staged
        for file in skill.files
    ]


def skill_signer(place: Path, files: Iterable[SkillFile], trusted: Trusted) -> Signer | None:
    """Who signed one skill, by the signatures that lie in it; each of them must match."""
    listed = {file.path: file for file in files}
    signed = [file for path, file in listed.items() if path not in SIGNATURES]
    found: list[Signer | None] = []
    if SIGNATURE in listed:
        data = read_capped(place / SIGNATURE, cap=MAX_SIGNATURE_BYTES)
        found.append(signer_of(data, signed, trusted, place=f"{place.name}/{SIGNATURE}"))
    if OMS_SIGNATURE in listed:
        data = read_capped(place / OMS_SIGNATURE, cap=MAX_SIGNATURE_BYTES)
        found.append(oms_signer(data, signed, trusted, place=f"{place.name}/{OMS_SIGNATURE}"))
    return best_of(found)


def best_of(signers: Iterable[Signer | None]) -> Signer | None:
    """A trusted signer before any other."""
    known = [signer for signer in signers if signer is not None]
    return next((signer for signer in known if signer.trusted_as), known[0] if known else None)


def check_signer(name: str, signer: Signer | None, *, pinned: str | None, required: bool) -> None:
    """Refuse a skill without the signature it must have, or by another signer than the one before."""
    trusted = signer is not None and signer.trusted_as is not None
    if required and not trusted:
        by = f"signed by {signer.words}" if signer else "not signed"
        raise IntegrityFailed(
            f"The skill {name!r} is {by}, and a signature by a key in ~/.agent/trusted-keys is required: "
            "nothing was installed.",
            code="signature",
        )
    if pinned is not None and not trusted and (signer is None or signer.identity != pinned):
        by = signer.words if signer else "nobody"
        raise IntegrityFailed(
            f"The skill {name!r} was signed by {pinned[:24]}… when it was installed, and is now signed by "
            f"{by}: trust the new key, or uninstall the skill first.",
            code="signature",
        )
