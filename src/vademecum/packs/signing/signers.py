"""Files that are about to be installed → who signed them, and whether that is good enough."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vademecum.errors import IntegrityFailed
from vademecum.files import read_capped
from vademecum.packs.content import SkillFile
from vademecum.packs.signing.envelopes import (
    MAX_SIGNATURE_BYTES,
    OMS_SIGNATURE,
    SIGNATURE,
    SIGNATURES,
    Signer,
    signer_of,
)
from vademecum.packs.signing.oms import oms_signer
from vademecum.packs.signing.signing_keys import Trusted


def skill_signer(place: Path, files: Iterable[SkillFile], trusted: Trusted) -> Signer | None:
    """Return who signed one skill, by the signatures in it; each of them must match."""
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
    """Return a trusted signer before any other."""
    known = [signer for signer in signers if signer is not None]
    return next((signer for signer in known if signer.trusted_as), known[0] if known else None)


def signed_words(signer: Signer | None) -> str:
    """Return whether and by whom something is signed, as people read it."""
    return f"signed by {signer.words}" if signer else "not signed"


def check_signer(name: str, signer: Signer | None, *, pinned: str | None, required: bool) -> None:
    """Refuse a skill without the signature it must have, or by another signer than the one before."""
    trusted = signer is not None and signer.trusted_as is not None
    if required and not trusted:
        raise IntegrityFailed(
            f"The skill {name!r} is {signed_words(signer)}, and a signature by a key in "
            "~/.agent/trusted-keys is required: nothing was installed.",
            code="signature",
        )
    if pinned is not None and not trusted and (signer is None or signer.identity != pinned):
        by = signer.words if signer else "no key"
        raise IntegrityFailed(
            f"The skill {name!r} was signed by {pinned[:24]}… when it was installed, and is now signed by "
            f"{by}: trust the new key, or uninstall the skill first.",
            code="signature",
        )
