"""Files and a key → a signature; a signature and files → who signed them, or a refusal.

Both forms are a DSSE envelope around an in-toto statement. ``skill.sig`` has one subject for each file, and
the public key, so that the lock can name a key that is not trusted yet. ``skill.oms.sig`` is the form of
OpenSSF Model Signing: a Sigstore bundle, made and verified with a key and without the network. What only a
certificate or a transparency log could prove does not count.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from vademecum.errors import IntegrityFailed
from vademecum.packs.content import OMS_SIGNATURE, SIGNATURE, SkillFile
from vademecum.packs.signing_keys import (
    PrivateKey,
    PublicKey,
    Trusted,
    id_of,
    is_signed_by,
    public_key,
    public_text,
    signature_by,
)

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:vademecum:skill-signature:1"
OMS_PREDICATE_TYPE = "https://model_signing/signature/v1.0"
MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
# What verifiers of Model Signing pass over; they skip files of git in any case.
_IGNORED = (".git", ".gitattributes", ".github", ".gitignore", SIGNATURE, OMS_SIGNATURE)
# That form lets signers leave files out; only these may be.
_HARMLESS = frozenset({".gitignore", ".gitattributes"})

Kind = TypeVar("Kind")


class Signer(Struct, frozen=True):
    """Who signed: a key by its id, and its name if it is trusted.

    If the key itself is not known, ``identity`` is empty: the signature could not be checked.
    """

    identity: str
    trusted_as: str | None = None

    @property
    def words(self) -> str:
        """Return the signer as people read it."""
        if not self.identity:
            return "a key you do not trust"
        known = f"{self.trusted_as!r}, trusted" if self.trusted_as else "a key you do not trust"
        return f"{self.identity[:24]}… ({known})"


def signed_words(signer: Signer | None) -> str:
    """Return whether and by whom something is signed, as people read it."""
    return f"signed by {signer.words}" if signer else "not signed"


class EnvelopeSignature(Struct, frozen=True, rename="camel"):
    """The signature of an envelope, and the key it says to be of."""

    sig: str
    keyid: str = ""
    public_key: str = ""


class Envelope(Struct, frozen=True, rename="camel"):
    """A DSSE envelope."""

    payload_type: str
    payload: str
    signatures: tuple[EnvelopeSignature, ...]


class Subject(Struct, frozen=True):
    """One signed file."""

    name: str
    digest: dict[str, str]


class Statement(Struct, frozen=True, rename={"kind": "_type", "predicate_type": "predicateType"}):
    """An in-toto statement about files."""

    kind: str
    subject: tuple[Subject, ...]
    predicate_type: str
    predicate: dict[str, Any] = {}


class Material(Struct, frozen=True, rename="camel"):
    """What a bundle says about its key; certificates are not followed."""

    public_key: dict[str, str] | None = None
    certificate: Any = None
    x509_certificate_chain: Any = None


class Bundle(Struct, frozen=True, rename="camel"):
    """A Sigstore bundle."""

    verification_material: Material
    dsse_envelope: Envelope


class Resource(Struct, frozen=True):
    """One signed file, as Model Signing lists it."""

    name: str
    digest: str
    algorithm: Literal["sha256"]


class Predicate(Struct, frozen=True):
    """What Model Signing says of the files."""

    resources: tuple[Resource, ...]


def signed(files: Iterable[SkillFile], key: PrivateKey) -> bytes:
    """Return the signature of these files."""
    listed = sorted(files, key=lambda file: file.path.encode())
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": file.path, "digest": {"sha256": file.sha256}} for file in listed],
        "predicateType": PREDICATE_TYPE,
        "predicate": {"executable": [file.path for file in listed if file.executable]},
    }
    public = key.public_key()
    envelope = _sealed(statement, key, keyid=id_of(public), publicKey=public_text(public).decode())
    return (json.dumps(envelope, indent=2, sort_keys=True) + "\n").encode()


def oms_signed(files: Iterable[SkillFile], key: PrivateKey, name: str) -> bytes:
    """Return a signature that other tools for OpenSSF Model Signing verify; they need an ECDSA key."""
    listed = sorted(
        (file for file in files if file.path.partition("/")[0] not in _IGNORED), key=lambda f: f.path
    )
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": _whole(file.sha256 for file in listed)}}],
        "predicateType": OMS_PREDICATE_TYPE,
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
    bundle = {
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {"hint": _text_hint(key.public_key())}, "tlogEntries": []},
        "dsseEnvelope": _sealed(statement, key, keyid=""),
    }
    return (json.dumps(bundle, indent=2) + "\n").encode()


def signer_of(data: bytes, files: Iterable[SkillFile], trusted: Trusted, *, place: str) -> Signer:
    """Return who signed exactly these files; refuse anything else."""
    envelope = _decoded(data, Envelope, place)
    statement, message, signature = _opened(envelope, PREDICATE_TYPE, place)
    named = envelope.signatures[0]
    known = {id_of(key): (name, key) for name, key in trusted.keys}
    try:
        name, key = known.get(named.keyid) or (None, public_key(named.public_key.encode()))
    except ValueError as error:
        raise _mismatch(place, f"is by an unknown key ({named.keyid[:16]}…)") from error
    if id_of(key) != named.keyid:
        raise _mismatch(place, "brings another key than it names")
    if not is_signed_by(key, signature, message):
        raise _mismatch(place, f"was not made by the key {named.keyid[:16]}…")
    listed = list(files)
    said = {subject.name: subject.digest.get("sha256", "") for subject in statement.subject}
    _check_files(said, listed, place)
    executable = statement.predicate.get("executable")
    if executable != sorted((file.path for file in listed if file.executable), key=str.encode):
        raise _mismatch(place, "is for other executable files")
    return Signer(f"key:{id_of(key)}", name)


def oms_signer(data: bytes, files: Iterable[SkillFile], trusted: Trusted, *, place: str) -> Signer:
    """Return who signed exactly these files, without an identity if the key is not known here."""
    bundle = _decoded(data, Bundle, place)
    statement, message, signature = _opened(bundle.dsse_envelope, OMS_PREDICATE_TYPE, place)
    try:
        listed = msgspec.convert(statement.predicate, type=Predicate).resources
        whole = _whole(resource.digest for resource in listed)
    except ValueError as error:
        raise _mismatch(place, f"cannot be understood ({error})") from error
    if [subject.digest.get("sha256") for subject in statement.subject] != [whole]:
        raise _mismatch(place, "contradicts itself")
    said = {resource.name: resource.digest for resource in listed}
    _check_files(said, (f for f in files if f.path in said or f.path not in _HARMLESS), place)
    material = bundle.verification_material
    if material.public_key is None:
        if not material.certificate and not material.x509_certificate_chain:
            raise _mismatch(place, "brings no key and no certificate")
        return Signer("")
    # The hint's form differs between signers, so every key is tried.
    for name, key in trusted.keys:
        if is_signed_by(key, signature, message):
            return Signer(f"key:{id_of(key)}", name)
    hint = material.public_key.get("hint", "")
    if any(hint in {id_of(key), _text_hint(key)} for _, key in trusted.keys):
        raise _mismatch(place, f"was not made by the key {hint[:16]}…")
    return Signer("")


# The files of a skill that sign it, with what reads each.
READERS = {SIGNATURE: signer_of, OMS_SIGNATURE: oms_signer}


def encoded(kind: str, payload: bytes) -> bytes:
    r"""Return what is really signed: the payload with its kind and both lengths.

    >>> encoded("text", b"hello")
    b'DSSEv1 4 text 5 hello'
    """
    return b"DSSEv1 %d %s %d %s" % (len(kind.encode()), kind.encode(), len(payload), payload)


def _sealed(statement: dict[str, Any], key: PrivateKey, **named: str) -> dict[str, Any]:
    """Return a statement in an envelope with one signature, and what names the key."""
    payload = json.dumps(statement, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
    signature = base64.b64encode(signature_by(key, encoded(PAYLOAD_TYPE, payload))).decode()
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"sig": signature, **named}],
    }


def _opened(envelope: Envelope, predicate_type: str, place: str) -> tuple[Statement, bytes, bytes]:
    """Return the statement in an envelope, the signed message, and its signature, not verified yet."""
    if envelope.payload_type != PAYLOAD_TYPE or len(envelope.signatures) != 1:
        raise _mismatch(place, "is not a signature of files")
    try:
        payload = base64.b64decode(envelope.payload, validate=True)
        signature = base64.b64decode(envelope.signatures[0].sig, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _mismatch(place, f"cannot be understood ({error})") from error
    statement = _decoded(payload, Statement, place)
    if (statement.kind, statement.predicate_type) != (STATEMENT_TYPE, predicate_type):
        raise _mismatch(place, f"is a statement of another kind ({statement.predicate_type!r})")
    return statement, encoded(PAYLOAD_TYPE, payload), signature


def _check_files(said: dict[str, str], files: Iterable[SkillFile], place: str) -> None:
    """Compare what was signed with what is there, file by file."""
    found = {file.path: file.sha256 for file in files}
    wrong = sorted(name for name in {*said, *found} if said.get(name) != found.get(name))
    if wrong:
        raise _mismatch(place, f"does not match {wrong[0]!r}")


def _whole(digests: Iterable[str]) -> str:
    """Return the digest of all files, as Model Signing computes it."""
    return hashlib.sha256(b"".join(map(bytes.fromhex, digests))).hexdigest()


def _text_hint(key: PublicKey) -> str:
    return hashlib.sha256(public_text(key)).hexdigest()


def _decoded(data: bytes, kind: type[Kind], place: str) -> Kind:
    """Parse a part of a signature from its JSON."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _mismatch(place, f"cannot be understood ({error})") from error


def _mismatch(place: str, reason: str) -> IntegrityFailed:
    """Return the refusal of a signature, which no flag can overrule."""
    return IntegrityFailed(f"The signature {place} {reason}: nothing was installed.", code="signature")
