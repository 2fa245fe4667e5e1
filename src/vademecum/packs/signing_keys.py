"""Make and read keys, and say which of them the user trusts."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from msgspec import Struct

from vademecum.errors import ConfigError, FileRefused, PackRefused
from vademecum.files import read_capped

PublicKey = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey
PrivateKey = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey

MAX_KEY_BYTES = 64 * 1024
MAX_TRUSTED = 1000
TRUSTED_DIRECTORY = "trusted-keys"
KEY_DIRECTORY = "keys"
KEY_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}\Z")


class Trusted(Struct, frozen=True):
    """The keys in ``~/.agent/trusted-keys``, each with its file's name."""

    keys: tuple[tuple[str, PublicKey], ...] = ()


def new_key(directory: Path, name: str, *, ecdsa: bool = False) -> tuple[Path, Path, str]:
    """Make a key pair, Ed25519 or ec.ECDSA on P-256: ``name.pem`` is private, ``name.pub`` is for others."""
    if not KEY_NAME.match(name):
        raise ConfigError(f"{name!r} cannot name a key: use letters, digits, '.', '_' and '-'.")
    key = ec.generate_private_key(ec.SECP256R1()) if ecdsa else ed25519.Ed25519PrivateKey.generate()
    secret = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    private, public = directory / f"{name}.pem", directory / f"{name}.pub"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be made ({error.strerror}): set HOME.") from error
    for path, data, mode in ((private, secret, 0o600), (public, public_text(key.public_key()), 0o644)):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError as error:
            raise PackRefused(
                f"{path} exists already: a key is never overwritten. Choose another name."
            ) from error
        with os.fdopen(descriptor, "wb") as out:
            out.write(data)
    return private, public, id_of(key.public_key())


def private_key(path: Path) -> PrivateKey:
    """Return the private key in a file."""
    try:
        found = form.load_pem_private_key(read_capped(path, cap=MAX_KEY_BYTES), None)
    except FileNotFoundError as error:
        raise ConfigError(f"There is no key {path}: make one with vade keygen.") from error
    except (OSError, FileRefused, ValueError, TypeError) as error:
        raise ConfigError(f"{path} is not a private key that can be used ({error}).") from error
    if not isinstance(found, PrivateKey):
        raise ConfigError(f"{path} is neither an Ed25519 nor an ec.ECDSA key: make one with vade keygen.")
    return found


def signature_by(key: PrivateKey, message: bytes) -> bytes:
    """Return a key's signature of a message."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(message)
    return key.sign(message, _ecdsa(key.curve))


def trusted_keys(directory: Path) -> Trusted:
    """Return everything in the directory of trusted keys; a file that is not a key is an error."""
    files = trusted_files(directory)
    return Trusted(tuple((file.name.rpartition(".")[0] or file.name, trusted_in(file)) for file in files))


def trusted_files(directory: Path) -> list[Path]:
    """Return the files in the directory of trusted keys, none if it is missing."""
    try:
        names = sorted(name for name in os.listdir(directory) if not name.startswith("."))
    except OSError as error:
        if not os.path.lexists(directory):
            return []
        raise ConfigError(
            f"{directory} cannot be listed ({error.strerror}): make it a readable directory."
        ) from error
    return [directory / name for name in names[:MAX_TRUSTED]]


def trusted_in(file: Path) -> PublicKey:
    """Return the key in one file."""
    try:
        return public_key(read_capped(file, cap=MAX_KEY_BYTES))
    except (OSError, FileRefused, ValueError, TypeError) as error:
        raise ConfigError(f"{file} is not a public key in PEM form ({error}): remove it.") from error


def public_key(text: bytes) -> PublicKey:
    """Parse a public key in PEM form; raise ``ValueError`` if it cannot be used."""
    try:
        key = form.load_pem_public_key(text)
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from error
    if isinstance(key, PublicKey):
        return key
    raise ValueError("only Ed25519 and elliptic curves are taken")


def public_text(key: PublicKey) -> bytes:
    """Return a public key in PEM form."""
    return key.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)


def id_of(key: PublicKey) -> str:
    """Return a key's id: the sha256 of its usual binary form."""
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
