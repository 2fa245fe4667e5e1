"""``skill.oms.sig``: signatures in the form of OpenSSF Model Signing, verified without the network.

A Sigstore bundle holds the envelope. It was made with a key, which must be a trusted one, or with a
certificate, whose chain must end in a trusted one. What only a transparency log could prove is not believed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from vademecum.packs.content import SkillFile
from vademecum.packs.keys import Trusted, id_of, is_signed_by, public_text
from vademecum.packs.signing import (
    PAYLOAD_TYPE,
    STATEMENT_TYPE,
    Envelope,
    Signer,
    Statement,
    bytes_of,
    check_files,
    decoded,
    encoded,
    mismatch,
)

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from vademecum.packs.keys import PublicKey

PREDICATE_TYPE = "https://model_signing/signature/v1.0"
MAX_CHAIN = 8
_HARMLESS = frozenset({".gitignore", ".gitattributes"})


class RawCertificate(Struct, frozen=True, rename="camel"):
    """A certificate as a bundle has it."""

    raw_bytes: str


class Chain(Struct, frozen=True):
    """Certificates, the signer's own first."""

    certificates: tuple[RawCertificate, ...]


class KeyHint(Struct, frozen=True):
    """Something that names a key."""

    hint: str = ""


class Material(Struct, frozen=True, rename="camel"):
    """What a bundle brings to verify it with."""

    public_key: KeyHint | None = None
    certificate: RawCertificate | None = None
    x509_certificate_chain: Chain | None = None


class Bundle(Struct, frozen=True, rename="camel"):
    """A Sigstore bundle."""

    verification_material: Material
    dsse_envelope: Envelope


class Resource(Struct, frozen=True):
    """One signed file."""

    name: str
    digest: str
    algorithm: str


def oms_signer(data: bytes, files: Iterable[SkillFile], trusted: Trusted, *, place: str) -> Signer | None:
    """Who signed exactly these files; none where the key or certificate is not known here."""
    bundle = decoded(data, Bundle, place)
    envelope = bundle.dsse_envelope
    payload = bytes_of(envelope.payload, place)
    if envelope.payload_type != PAYLOAD_TYPE or len(envelope.signatures) != 1:
        raise mismatch(place, "is none of files")
    _check_statement(decoded(payload, Statement, place), files, place)
    message = encoded(PAYLOAD_TYPE, payload)
    signature = bytes_of(envelope.signatures[0].sig, place)
    material = bundle.verification_material
    if material.public_key is not None:
        return _by_key(signature, message, trusted, named=material.public_key.hint, place=place)
    listed = material.x509_certificate_chain.certificates if material.x509_certificate_chain else ()
    listed = (material.certificate,) if material.certificate else listed
    if not 1 <= len(listed) <= MAX_CHAIN:
        raise mismatch(place, "brings no key and no certificate")
    return _by_certificate(signature, message, [_certificate(raw, place) for raw in listed], trusted, place)


def _check_statement(statement: Statement, files: Iterable[SkillFile], place: str) -> None:
    if (statement.kind, statement.predicate_type) != (STATEMENT_TYPE, PREDICATE_TYPE):
        raise mismatch(place, f"is a statement of another kind ({statement.predicate_type!r})")
    try:
        listed = [Resource(**resource) for resource in statement.predicate["resources"]]
        whole = hashlib.sha256(b"".join(bytes.fromhex(resource.digest) for resource in listed)).hexdigest()
        said = statement.subject[0].digest["sha256"]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise mismatch(place, f"cannot be understood ({error!r})") from error
    if whole != said or any(resource.algorithm != "sha256" for resource in listed):
        raise mismatch(place, "contradicts itself")
    # The format lets signers leave files out. Only these can be left out without harm.
    names = {resource.name for resource in listed}
    counted = [file for file in files if file.path in names or file.path not in _HARMLESS]
    check_files({resource.name: resource.digest for resource in listed}, counted, place)


def _by_key(signature: bytes, message: bytes, trusted: Trusted, *, named: str, place: str) -> Signer | None:
    """The trusted key that made it. The hint's form differs between signers, so every key is tried."""
    for name, key in trusted.keys:
        if is_signed_by(key, signature, message):
            return Signer(f"key:{id_of(key)}", name)
    if any(named in {id_of(key), _text_hint(key)} for _, key in trusted.keys):
        raise mismatch(place, f"was not made by the key {named[:16]}…")
    return None


def _text_hint(key: PublicKey) -> str:
    return hashlib.sha256(public_text(key)).hexdigest()


def _by_certificate(
    signature: bytes, message: bytes, chain: Sequence[Certificate], trusted: Trusted, place: str
) -> Signer | None:
    from vademecum.packs.certificates import anchor_of, key_for_signing  # noqa: PLC0415

    key = key_for_signing(chain[0])
    if key is None or not is_signed_by(key, signature, message):
        raise mismatch(place, "was not made with the certificate it brings")
    name = anchor_of(chain, trusted.certificates)
    return None if name is None else Signer(f"certificate:{id_of(key)}", name)


def _certificate(raw: RawCertificate, place: str) -> Certificate:
    from cryptography import x509  # noqa: PLC0415

    try:
        return x509.load_der_x509_certificate(bytes_of(raw.raw_bytes, place))
    except ValueError as error:
        raise mismatch(place, f"brings a certificate that cannot be read ({error})") from error
