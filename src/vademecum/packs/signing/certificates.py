"""A chain of certificates → the trusted one that it ends in, as of the day the signer's was issued.

A signature stays valid after the certificate has expired, as in the tools of that format: a bundle that is
verified offline has no clock that could be trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID

if TYPE_CHECKING:
    from vademecum.packs.signing.signing_keys import PublicKey

Kind = TypeVar("Kind", bound=x509.ExtensionType)


def key_for_signing(certificate: x509.Certificate) -> PublicKey | None:
    """Return the key of a certificate that was issued for signing, or None."""
    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return None
    if not isinstance(key, (ed25519.Ed25519PublicKey, ec.EllipticCurvePublicKey)):
        return None
    usage = _extension(certificate, x509.KeyUsage)
    extended = _extension(certificate, x509.ExtendedKeyUsage)
    signs = usage is not None and usage.digital_signature
    signs_code = extended is not None and ExtendedKeyUsageOID.CODE_SIGNING in extended
    return key if signs or signs_code else None


def anchor_of(
    chain: Sequence[x509.Certificate], trusted: Iterable[tuple[str, x509.Certificate]]
) -> str | None:
    """Return the name of the trusted certificate that a chain leads to, or None."""
    anchors = list(trusted)
    moment = chain[0].not_valid_before_utc
    current = chain[0]
    others = list(chain[1:])
    for between in range(len(chain)):
        for name, anchor in anchors:
            issued = _issued(anchor, current, between=between) and _is_valid(anchor, moment)
            if current == anchor or issued:
                return name
        above = next((other for other in others if _issued(other, current, between=between)), None)
        if above is None or not _is_valid(above, moment):
            return None
        others.remove(above)
        current = above
    return None


def _issued(issuer: x509.Certificate, subject: x509.Certificate, *, between: int) -> bool:
    """Return whether an authority that may stand ``between`` steps above the signer issued a certificate."""
    constraints = _extension(issuer, x509.BasicConstraints)
    usage = _extension(issuer, x509.KeyUsage)
    if constraints is None or not constraints.ca or (usage is not None and not usage.key_cert_sign):
        return False
    if constraints.path_length is not None and between > constraints.path_length:
        return False
    try:
        subject.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _is_valid(certificate: x509.Certificate, moment: datetime) -> bool:
    return certificate.not_valid_before_utc <= moment <= certificate.not_valid_after_utc


def _extension(certificate: x509.Certificate, kind: type[Kind]) -> Kind | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except (x509.ExtensionNotFound, ValueError):
        return None
