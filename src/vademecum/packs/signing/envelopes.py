"""Files and a key → a signature; a signature and files → who signed them, or a refusal.

A signature is a DSSE envelope around an in-toto statement with one subject for each file. The envelope also
has the public key, so that the lock can name a key that is not trusted yet.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from vademecum.errors import IntegrityFailed
from vademecum.packs.content import SkillFile
from vademecum.packs.signing.signing_keys import (
    Trusted,
    id_of,
    is_signed_by,
    public_key,
    public_text,
    signature_by,
)

if TYPE_CHECKING:
    from vademecum.packs.signing.signing_keys import PrivateKey, PublicKey

SIGNATURE, OMS_SIGNATURE = "skill.sig", "skill.oms.sig"
SIGNATURES = frozenset({SIGNATURE, OMS_SIGNATURE})
MAX_SIGNATURE_BYTES = 8 * 1024 * 1024
MAX_SIGNATURES = 16
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:vademecum:skill-signature:1"

Kind = TypeVar("Kind")


class Signer(Struct, frozen=True):
    """Who signed: a key or certificate by its id, and its name if it is trusted.

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
    """One signature of an envelope, and the key it says to be of."""

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


def signed(files: Iterable[SkillFile], key: PrivateKey) -> bytes:
    """Return the signature of these files."""
    listed = sorted(files, key=lambda file: file.path.encode())
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": file.path, "digest": {"sha256": file.sha256}} for file in listed],
        "predicateType": PREDICATE_TYPE,
        "predicate": {"executable": [file.path for file in listed if file.executable]},
    }
    payload = json.dumps(statement, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
    public = key.public_key()
    envelope = sealed(payload, key, keyid=id_of(public), publicKey=public_text(public).decode())
    return (json.dumps(envelope, indent=2, sort_keys=True) + "\n").encode()


def sealed(payload: bytes, key: PrivateKey, **named: str) -> dict[str, Any]:
    """Return a payload in an envelope with one signature, and what names the key."""
    signature = base64.b64encode(signature_by(key, encoded(PAYLOAD_TYPE, payload))).decode()
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"sig": signature, **named}],
    }


def signer_of(data: bytes, files: Iterable[SkillFile], trusted: Trusted, *, place: str) -> Signer:
    """Return who signed exactly these files; refuse anything else."""
    envelope = decoded(data, Envelope, place)
    payload = bytes_of(envelope.payload, place)
    signer = _signer(envelope, payload, trusted, place)
    statement = decoded(payload, Statement, place)
    if (statement.kind, statement.predicate_type) != (STATEMENT_TYPE, PREDICATE_TYPE):
        raise mismatch(place, f"is a statement of another kind ({statement.predicate_type!r})")
    said = {subject.name: subject.digest.get("sha256", "") for subject in statement.subject}
    listed = list(files)
    check_files(said, listed, place)
    executable = statement.predicate.get("executable")
    if executable != sorted((file.path for file in listed if file.executable), key=str.encode):
        raise mismatch(place, "is for other executable files")
    return signer


def check_files(said: dict[str, str], files: Iterable[SkillFile], place: str) -> None:
    """Compare what was signed with what is there, file by file."""
    found = {file.path: file.sha256 for file in files}
    wrong = sorted(name for name in {*said, *found} if said.get(name) != found.get(name))
    if wrong:
        raise mismatch(place, f"does not match {wrong[0]!r}")


def encoded(kind: str, payload: bytes) -> bytes:
    r"""Return what is really signed: the payload with its kind and both lengths.

    >>> encoded("text", b"hello")
    b'DSSEv1 4 text 5 hello'
    """
    return b"DSSEv1 %d %s %d %s" % (len(kind.encode()), kind.encode(), len(payload), payload)


def decoded(data: bytes, kind: type[Kind], place: str) -> Kind:
    """Parse a part of a signature from its JSON."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise mismatch(place, f"cannot be understood ({error})") from error


def bytes_of(text: str, place: str) -> bytes:
    """Decode a text in base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise mismatch(place, f"cannot be understood ({error})") from error


def mismatch(place: str, reason: str) -> IntegrityFailed:
    """Return the refusal of a signature, which no flag can overrule."""
    return IntegrityFailed(f"The signature {place} {reason}: nothing was installed.", code="signature")


def _signer(envelope: Envelope, payload: bytes, trusted: Trusted, place: str) -> Signer:
    if envelope.payload_type != PAYLOAD_TYPE or not envelope.signatures:
        raise mismatch(place, "is not a signature of files")
    message = encoded(envelope.payload_type, payload)
    signers = []
    for one in envelope.signatures[:MAX_SIGNATURES]:
        name, key = trusted.key(one.keyid) or (None, _own_key(one, place))
        if not is_signed_by(key, bytes_of(one.sig, place), message):
            raise mismatch(place, f"was not made by the key {one.keyid[:16]}…")
        signers.append(Signer(f"key:{id_of(key)}", name))
    return next((signer for signer in signers if signer.trusted_as), signers[0])


def _own_key(signature: EnvelopeSignature, place: str) -> PublicKey:
    """Return the key that the envelope brings, if it is the one it names."""
    try:
        key = public_key(signature.public_key.encode())
    except ValueError as error:
        raise mismatch(place, f"is by an unknown key ({signature.keyid[:16]}…)") from error
    if id_of(key) != signature.keyid:
        raise mismatch(place, "brings another key than it names")
    return key
