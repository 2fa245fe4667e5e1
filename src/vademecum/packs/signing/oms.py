"""``skill.oms.sig``: signatures in the form of OpenSSF Model Signing, made and verified without the network.

A Sigstore bundle contains the envelope. It was made with a key, which must be trusted, or with a certificate,
whose chain must end in a trusted one. What only a transparency log could prove does not count.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from vademecum.packs.content import SkillFile
from vademecum.packs.signing.envelopes import (
    OMS_SIGNATURE,
    PAYLOAD_TYPE,
    SIGNATURE,
    STATEMENT_TYPE,
    Envelope,
    Signer,
    Statement,
    bytes_of,
    check_files,
    decoded,
    encoded,
    mismatch,
    sealed,
)
from vademecum.packs.signing.signing_keys import Trusted, id_of, is_signed_by, public_text

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from vademecum.packs.signing.signing_keys import PrivateKey, PublicKey

PREDICATE_TYPE = "https://model_signing/signature/v1.0"
MAX_CHAIN = 8
MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
# What verifiers of that format pass over; they skip files of git in any case.
_IGNORED = (".git", ".gitattributes", ".github", ".gitignore", SIGNATURE, OMS_SIGNATURE)
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
    """The key hint or the certificates of a bundle, used to verify it."""

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


def oms_signed(files: Iterable[SkillFile], key: PrivateKey, name: str) -> bytes:
    """Return a signature that other tools for OpenSSF Model Signing verify; they need an ECDSA key."""
    listed = sorted(
        (file for file in files if file.path.partition("/")[0] not in _IGNORED), key=lambda f: f.path
    )
    whole = hashlib.sha256(b"".join(bytes.fromhex(file.sha256) for file in listed)).hexdigest()
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": whole}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "serialization": {
                "method": "files",
                "hash_type": "sha256",
                "allow_symlinks": False,
                "ignore_paths": list(_IGNORED),
            },
            "resources": [
                {"name": file.path, "algorithm": "sha256", "digest": file.sha256} for file in listed
            ],
        },
    }
    payload = json.dumps(statement, ensure_ascii=False, sort_keys=True).encode()
    bundle = {
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {"hint": _text_hint(key.public_key())}, "tlogEntries": []},
        "dsseEnvelope": sealed(payload, key, keyid=""),
    }
    return (json.dumps(bundle, indent=2) + "\n").encode()


def oms_signer(data: bytes, files: Iterable[SkillFile], trusted: Trusted, *, place: str) -> Signer:
    """Return who signed exactly these files, without an identity if the key is not known here."""
    bundle = decoded(data, Bundle, place)
    envelope = bundle.dsse_envelope
    payload = bytes_of(envelope.payload, place)
    if envelope.payload_type != PAYLOAD_TYPE or len(envelope.signatures) != 1:
        raise mismatch(place, "is not a signature of files")
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
    # The format lets signers leave files out; only these may be.
    names = {resource.name for resource in listed}
    counted = [file for file in files if file.path in names or file.path not in _HARMLESS]
    check_files({resource.name: resource.digest for resource in listed}, counted, place)


def _by_key(signature: bytes, message: bytes, trusted: Trusted, *, named: str, place: str) -> Signer:
    """Return the trusted key that made it; the hint's form differs between signers, so every key is tried."""
    for name, key in trusted.keys:
        if is_signed_by(key, signature, message):
            return Signer(f"key:{id_of(key)}", name)
    if any(named in {id_of(key), _text_hint(key)} for _, key in trusted.keys):
        raise mismatch(place, f"was not made by the key {named[:16]}…")
    return Signer("")


def _text_hint(key: PublicKey) -> str:
    return hashlib.sha256(public_text(key)).hexdigest()


def _by_certificate(
    signature: bytes, message: bytes, chain: Sequence[Certificate], trusted: Trusted, place: str
) -> Signer:
    from vademecum.packs.signing.certificates import anchor_of, key_for_signing  # noqa: PLC0415

    key = key_for_signing(chain[0])
    if key is None or not is_signed_by(key, signature, message):
        raise mismatch(place, "was not made with the certificate it brings")
    return Signer(f"certificate:{id_of(key)}", anchor_of(chain, trusted.certificates))


def _certificate(raw: RawCertificate, place: str) -> Certificate:
    from cryptography import x509  # noqa: PLC0415

    try:
        return x509.load_der_x509_certificate(bytes_of(raw.raw_bytes, place))
    except ValueError as error:
        raise mismatch(place, f"brings a certificate that cannot be read ({error})") from error
