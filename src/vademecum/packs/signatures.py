"""Create keys, sign the files of skills, and verify signatures with the keys that the user trusts.

Both formats are a DSSE envelope around an in-toto statement. ``skill.sig`` has one subject for each file, and
the public key, so that the lock can name a key that is not trusted yet. ``skill.oms.sig`` is the format of
OpenSSF Model Signing: a Sigstore bundle, made and verified with a key and without the network. Certificates
and transparency logs are not evaluated.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from msgspec import Struct

from vademecum.errors import ConfigError, FileRefused, IntegrityFailed
from vademecum.files import read_capped, read_own, writable
from vademecum.packs.content import OMS_SIGNATURE, SIGNATURE, SkillFile
from vademecum.packs.lock import json_text

PublicKey = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey
PrivateKey = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey
# The keys in `~/.agent/trusted-keys`, each with its file's name.
Trusted = tuple[tuple[str, PublicKey], ...]

MAX_KEY_BYTES = 64 * 1024
MAX_TRUSTED = 1000
TRUSTED_DIRECTORY = "trusted-keys"
KEY_DIRECTORY = "keys"
KEY_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}\Z")

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:vademecum:skill-signature:1"
OMS_PREDICATE_TYPE = "https://model_signing/signature/v1.0"
MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
# Files that verifiers of Model Signing ignore; they always skip files of git.
_IGNORED = (".git", ".gitattributes", ".github", ".gitignore", SIGNATURE, OMS_SIGNATURE)
# That format lets signers leave files out; we accept it only for these.
_HARMLESS = frozenset({".gitignore", ".gitattributes"})

Kind = TypeVar("Kind")


class Signer(Struct, frozen=True):
    """The signer: the id of a key, and its name if it is trusted.

    If the key itself is not known, ``identity`` is empty: the signature could not be checked.
    """

    identity: str
    trusted_as: str | None = None

    @property
    def words(self) -> str:
        """Return the signer as text."""
        if not self.identity:
            return "a key you do not trust"
        known = f"{self.trusted_as!r}, trusted" if self.trusted_as else "a key you do not trust"
        return f"{self.identity[:24]}… ({known})"


def signed_words(signer: Signer | None) -> str:
    """Return as text whether and by whom something is signed."""
    return f"signed by {signer.words}" if signer else "not signed"


class EnvelopeSignature(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The signature of an envelope, and the key that it names."""

    sig: bytes
    keyid: str = ""
    public_key: str = ""


class Envelope(Struct, frozen=True, rename="camel"):
    """A DSSE envelope, without base64."""

    payload_type: str
    payload: bytes
    signatures: tuple[EnvelopeSignature, ...]


class Subject(Struct, frozen=True):
    """One signed file."""

    name: str
    digest: dict[str, str]


class Resource(Struct, frozen=True):
    """One signed file, as Model Signing lists it."""

    name: str
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    algorithm: Literal["sha256"]


class Predicate(Struct, frozen=True):
    """The part of a statement that depends on its type: paths of executable files, or files."""

    executable: tuple[str, ...] = ()
    resources: tuple[Resource, ...] = ()


class Statement(Struct, frozen=True, rename={"kind": "_type", "predicate_type": "predicateType"}):
    """An in-toto statement about files."""

    kind: str
    subject: tuple[Subject, ...]
    predicate_type: str
    predicate: Predicate = Predicate()


class Material(Struct, frozen=True, rename="camel"):
    """The key of a bundle; certificates are ignored."""

    public_key: dict[str, str] | None = None


class Bundle(Struct, frozen=True, rename="camel"):
    """A Sigstore bundle."""

    verification_material: Material
    dsse_envelope: Envelope


def new_key(directory: Path, name: str, *, ecdsa: bool = False) -> tuple[Path, Path, str]:
    """Create a key pair, Ed25519 or ECDSA on P-256: ``name.pem`` is private, ``name.pub`` is public."""
    if not KEY_NAME.match(name):
        raise ConfigError(f"{name!r} is not a valid name for a key: use letters, digits, '.', '_' and '-'.")
    key = ec.generate_private_key(ec.SECP256R1()) if ecdsa else ed25519.Ed25519PrivateKey.generate()
    secret = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    private, public = directory / f"{name}.pem", directory / f"{name}.pub"
    made: list[Path] = []
    files = (private, secret, 0o600), (public, public_text(key.public_key()), 0o644)
    with writable(directory):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            for path, data, mode in files:
                with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
                    made.append(path)
                    out.write(data)
        except OSError as error:
            for path in made:
                path.unlink()
            if not isinstance(error, FileExistsError):
                raise
            text = f"{error.filename} exists already: a key is never overwritten. Choose another name."
            raise ConfigError(text) from error
    return private, public, id_of(key.public_key())


def private_key(path: Path) -> PrivateKey:
    """Return the private key in a file."""
    try:
        found = form.load_pem_private_key(read_own(path, cap=MAX_KEY_BYTES, private=True), None)
    except FileNotFoundError as error:
        raise ConfigError(f"There is no key {path}: make one with vade keygen.", code="missing") from error
    except (OSError, FileRefused, ValueError, TypeError) as error:
        raise ConfigError(f"{path} is not a private key that can be used: {error}.") from error
    if not isinstance(found, PrivateKey):
        raise ConfigError(f"{path} is neither an Ed25519 nor an ECDSA key: make one with vade keygen.")
    return found


def trusted_keys(directory: Path) -> Trusted:
    """Return the keys in a directory, none if it is missing; raise ``ConfigError`` for other files."""
    try:
        names = sorted(name for name in os.listdir(directory) if not name.startswith("."))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ConfigError(
            f"{directory} cannot be listed ({error.strerror}): make it a readable directory."
        ) from error
    found = []
    for name in names[:MAX_TRUSTED]:
        try:
            key = public_key(read_capped(directory / name, cap=MAX_KEY_BYTES))
        except (OSError, FileRefused, ValueError, TypeError) as error:
            raise ConfigError(
                f"{directory / name} is not a public key in PEM form ({error}): remove it."
            ) from error
        found.append((name.rpartition(".")[0] or name, key))
    return tuple(found)


def public_key(text: bytes) -> PublicKey:
    """Parse a public key in PEM form; raise ``ValueError`` if it cannot be used."""
    try:
        key = form.load_pem_public_key(text)
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from error
    if isinstance(key, PublicKey):
        return key
    raise ValueError("only Ed25519 and elliptic curves are supported")


def public_text(key: PublicKey) -> bytes:
    """Return a public key in PEM form."""
    return key.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)


def id_of(key: PublicKey) -> str:
    """Return a key's id: the sha256 of its DER encoding."""
    data = key.public_bytes(form.Encoding.DER, form.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(data).hexdigest()


def is_signed_by(key: PublicKey, signature: bytes, message: bytes) -> bool:
    """Return whether this key made this signature of this message."""
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, message)
        else:
            key.verify(signature, message, _ecdsa(key.curve))
    except InvalidSignature:
        return False
    return True


def _ecdsa(curve: ec.EllipticCurve) -> ec.ECDSA:
    return ec.ECDSA({256: hashes.SHA256(), 384: hashes.SHA384()}.get(curve.key_size, hashes.SHA512()))


def signed(files: Iterable[SkillFile], key: PrivateKey) -> bytes:
    """Return the signature of these files."""
    listed = sorted(files)
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": file.path, "digest": {"sha256": file.sha256}} for file in listed],
        "predicateType": PREDICATE_TYPE,
        "predicate": {"executable": [file.path for file in listed if file.executable]},
    }
    public = key.public_key()
    return json_text(_sealed(statement, key, id_of(public), public_text(public).decode())).encode()


def oms_signed(files: Iterable[SkillFile], key: PrivateKey, name: str) -> bytes:
    """Return a signature that other tools for OpenSSF Model Signing verify; they need an ECDSA key."""
    listed = sorted(file for file in files if file.path.partition("/")[0] not in _IGNORED)
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
        "dsseEnvelope": _sealed(statement, key),
    }
    return json_text(bundle).encode()


def signer_of(data: bytes, files: Collection[SkillFile], trusted: Trusted, *, place: str) -> Signer:
    """Return the signer of exactly these files; raise ``IntegrityFailed`` if anything differs."""
    envelope = _decoded(data, Envelope, place)
    statement, message, signature = _opened(envelope, PREDICATE_TYPE, place)
    named = envelope.signatures[0]
    known = {id_of(key): (name, key) for name, key in trusted}
    try:
        name, key = known.get(named.keyid) or (None, public_key(named.public_key.encode()))
    except ValueError as error:
        raise _mismatch(place, f"is by an unknown key ({named.keyid[:16]}…)") from error
    if id_of(key) != named.keyid:
        raise _mismatch(place, "contains another key than it names")
    if not is_signed_by(key, signature, message):
        raise _mismatch(place, f"was not made by the key {named.keyid[:16]}…")
    said = {subject.name: subject.digest.get("sha256", "") for subject in statement.subject}
    _check_files(said, files, place)
    if [*statement.predicate.executable] != sorted(file.path for file in files if file.executable):
        raise _mismatch(place, "is for other executable files")
    return Signer(f"key:{id_of(key)}", name)


def oms_signer(data: bytes, files: Collection[SkillFile], trusted: Trusted, *, place: str) -> Signer:
    """Return the signer of exactly these files, without an identity if the key is unknown."""
    bundle = _decoded(data, Bundle, place)
    statement, message, signature = _opened(bundle.dsse_envelope, OMS_PREDICATE_TYPE, place)
    said = {resource.name: resource.digest for resource in statement.predicate.resources}
    whole = _whole(resource.digest for resource in statement.predicate.resources)
    if [subject.digest.get("sha256") for subject in statement.subject] != [whole]:
        raise _mismatch(place, "contradicts itself")
    _check_files(said, (f for f in files if f.path in said or f.path not in _HARMLESS), place)
    material = bundle.verification_material
    if material.public_key is None:
        return Signer("")
    # The hint's form differs between signers, so every key is tried.
    for name, key in trusted:
        if is_signed_by(key, signature, message):
            return Signer(f"key:{id_of(key)}", name)
    hint = material.public_key.get("hint", "")
    if any(hint in {id_of(key), _text_hint(key)} for _, key in trusted):
        raise _mismatch(place, f"was not made by the key {hint[:16]}…")
    return Signer("")


# The signature files of a skill, with the function that reads each.
READERS = {SIGNATURE: signer_of, OMS_SIGNATURE: oms_signer}


def encoded(kind: str, payload: bytes) -> bytes:
    r"""Return the bytes to sign: the payload with its kind and both lengths.

    >>> encoded("text", b"hello")
    b'DSSEv1 4 text 5 hello'
    """
    return b"DSSEv1 %d %s %d %s" % (len(kind.encode()), kind.encode(), len(payload), payload)


def _sealed(statement: dict[str, Any], key: PrivateKey, keyid: str = "", public: str = "") -> Envelope:
    """Sign a statement; return its envelope with one signature and the id of the key."""
    payload = msgspec.json.encode(statement, order="sorted")
    message = encoded(PAYLOAD_TYPE, payload)
    if isinstance(key, ed25519.Ed25519PrivateKey):
        made = key.sign(message)
    else:
        made = key.sign(message, _ecdsa(key.curve))
    return Envelope(PAYLOAD_TYPE, payload, (EnvelopeSignature(made, keyid, public),))


def _opened(envelope: Envelope, predicate_type: str, place: str) -> tuple[Statement, bytes, bytes]:
    """Return the statement in an envelope, the signed message, and its signature, not verified yet."""
    if envelope.payload_type != PAYLOAD_TYPE or len(envelope.signatures) != 1:
        raise _mismatch(place, "is not a signature of files")
    statement = _decoded(envelope.payload, Statement, place)
    if (statement.kind, statement.predicate_type) != (STATEMENT_TYPE, predicate_type):
        raise _mismatch(place, f"is a statement of another kind ({statement.predicate_type!r})")
    return statement, encoded(PAYLOAD_TYPE, envelope.payload), envelope.signatures[0].sig


def _check_files(said: dict[str, str], files: Iterable[SkillFile], place: str) -> None:
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
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _mismatch(place, f"cannot be understood ({error})") from error


def _mismatch(place: str, reason: str) -> IntegrityFailed:
    """Return the error for a signature, which no flag can overrule."""
    return IntegrityFailed(f"The signature {place} {reason}: nothing was installed.", code="signature")
