"""Signatures: made, matched, pinned, required; and what does not match is refused whatever the flags."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from tests.packs.support import make
from tests.support import Place
from vademecum.errors import ConfigError, IntegrityFailed
from vademecum.packs.content import SkillFile, files_of
from vademecum.packs.signatures import (
    OMS_PREDICATE_TYPE,
    PAYLOAD_TYPE,
    STATEMENT_TYPE,
    Trusted,
    encoded,
    id_of,
    new_key,
    oms_signer,
    private_key,
    public_text,
    signed,
    signer_of,
    trusted_keys,
)

KEY = ed25519.Ed25519PrivateKey.from_private_bytes(b"k" * 32)
FILES = [SkillFile("SKILL.md", "1" * 64, 3), SkillFile("scripts/run.sh", "2" * 64, 4, executable=True)]


def test_keys_are_for_their_owner_alone(place: Place) -> None:
    made = place.vade("keygen", "team", "--json").json
    private = Path(made["private"])
    assert private.stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" not in Path(made["public"]).read_bytes()
    again = place.vade("keygen", "team")
    assert (again.code, "never overwritten" in again.err) == (2, True)
    assert place.vade("keygen", "../x").code == 2
    assert place.vade("sign", str(place.cwd), "--key", "nope").code == 4
    (place.home / ".agent/keys/half.pub").touch()
    assert place.vade("keygen", "half").code == 2
    assert not (place.home / ".agent/keys/half.pem").exists()


FULL = """
import resource, signal, sys
from pathlib import Path
from vademecum.errors import ConfigError
from vademecum.packs.signatures import new_key
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for most in (0, 115):  # the public key of 113 bytes fits, the private one of 119 does not
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    try:
        new_key(Path(sys.argv[1]), "team")
    except ConfigError as error:
        print(error)
"""


def test_a_full_disk_leaves_no_key(tmp_path: Path) -> None:
    words = [sys.executable, "-c", FULL, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.count("cannot be written") == 2
    assert list(tmp_path.iterdir()) == []
    new_key(tmp_path, "team")


def test_the_same_signature_every_time_and_what_it_says() -> None:
    data = signed(FILES, KEY)
    assert signed(FILES[::-1], KEY) == data
    statement = json.loads(base64.b64decode(json.loads(data)["payload"]))
    assert statement["_type"] == STATEMENT_TYPE
    assert [subject["name"] for subject in statement["subject"]] == ["SKILL.md", "scripts/run.sh"]
    signer = signer_of(data, FILES, (("me", KEY.public_key()),), place="x")
    assert (signer.identity, signer.trusted_as) == (f"key:{id_of(KEY.public_key())}", "me")
    assert signer_of(data, FILES, (), place="x").trusted_as is None


def broken(change: Callable[[dict[str, Any]], None]) -> bytes:
    document = json.loads(signed(FILES, KEY))
    change(document)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("data", "files"),
    [
        (signed(FILES, KEY), FILES[:1]),
        (signed(FILES, KEY), [*FILES, SkillFile("more", "3" * 64, 1)]),
        (signed(FILES, KEY), [SkillFile("SKILL.md", "9" * 64, 3), FILES[1]]),
        (signed(FILES, KEY), [FILES[0], SkillFile("scripts/run.sh", "2" * 64, 4)]),
        (b"{", FILES),
        (b'{"payloadType": "x", "payload": "", "signatures": []}', FILES),
        (broken(lambda d: d.update(payload=base64.b64encode(b"{}").decode())), FILES),
        (broken(lambda d: d.update(payload="***")), FILES),
        (broken(lambda d: d.update(payloadType="text/plain")), FILES),
        (broken(lambda d: d["signatures"][0].update(sig=base64.b64encode(b"0" * 64).decode())), FILES),
        (broken(lambda d: d["signatures"][0].update(publicKey="")), FILES),
        (broken(lambda d: d["signatures"][0].update(keyid="0" * 64)), FILES),
        (broken(lambda d: d["signatures"].append(d["signatures"][0] | {"sig": ""})), FILES),
    ],
)
def test_what_does_not_match(data: bytes, files: list[SkillFile]) -> None:
    with pytest.raises(IntegrityFailed) as caught:
        signer_of(data, files, (), place="x")
    assert caught.value.code == "signature"


def test_skills_and_packs_are_signed_and_required(place: Place) -> None:
    make(place.cwd / "src", "mine")
    place.vade("keygen", "--trust")
    place.vade("pack", "src/mine", "-o", "plain.zip")
    refused = place.vade("install", "plain.zip", "--require-signature")
    assert (refused.code, "is not signed" in refused.err) == (5, True)
    assert place.vade("sign", "plain.zip").out == "Signed 2 files: plain.zip.sig\n"
    assert place.vade("verify-pack", "plain.zip", "--json").json["skills"][0]["trusted_as"] == "default"
    assert place.vade("install", "plain.zip", "--require-signature").code == 0
    assert place.vade("sign", "src/mine").out == "Signed 2 files: src/mine/skill.sig\n"
    assert "signed by key:" in place.vade("install", "src", "--require-signature").out
    assert place.vade("validate", "src/mine").code == 0
    (place.home / ".agent/trusted-keys/default.pub").unlink()
    assert place.vade("install", "src", "--require-signature").code == 5
    assert "a key you do not trust" in place.vade("install", "src").out


def test_the_configuration_can_require_it_and_a_project_cannot_do_away_with_it(place: Place) -> None:
    make(place.cwd / "src", "mine")
    (place.home / ".agent").mkdir(exist_ok=True)
    (place.home / ".agent/config.json").write_text('{"security": {"require_signatures": ["user"]}}')
    assert place.vade("install", "src").code == 0
    assert place.vade("install", "src", "--scope", "user").code == 5
    (place.cwd / ".agent/config.json").write_text('{"security": {"require_signatures": []}}')
    assert place.vade("install", "src", "--scope", "user").code == 5
    (place.cwd / ".agent/config.json").write_text('{"security": {"require_signatures": ["project"]}}')
    assert place.vade("update").code == 5
    (place.home / ".agent/config.json").write_text('{"security": {"require_signatures": ["all"]}}')
    assert place.vade("list").code == 2


def test_a_signature_that_does_not_match_is_refused_whatever_the_flags(place: Place) -> None:
    skill = make(place.cwd / "src", "mine")
    place.vade("keygen", "--trust")
    place.vade("sign", "src/mine")
    (skill / "scripts/run.sh").write_text("echo other\n")
    done = place.vade("install", "src", "--force", "--allow-unsafe")
    assert (done.code, "does not match 'scripts/run.sh'" in done.err) == (5, True)
    (skill / "skill.sig").unlink()
    place.vade("pack", "src/mine", "-o", "x.zip")
    place.vade("sign", "x.zip")
    (skill / "more").write_text("x")
    place.vade("pack", "src/mine", "-o", "x.zip")
    assert place.vade("install", "x.zip", "--force").code == 5
    assert place.vade("verify-pack", "x.zip").code == 5
    assert not (place.cwd / ".agent/skills/mine").exists()


def test_a_signature_is_pinned_for_a_skill_that_is_there_already(place: Place) -> None:
    make(place.cwd / "src", "mine")
    place.vade("keygen", "--trust")
    for name in ("unsigned.zip", "signed.zip"):
        place.vade("pack", "src/mine", "-o", name)
    place.vade("sign", "signed.zip")
    assert place.vade("install", "unsigned.zip").code == 0
    same = place.vade("install", "signed.zip")
    assert (same.code, "its source stays" in same.out) == (0, True), (same.out, same.err)
    make(place.cwd / "other", "mine", "two")
    done = place.vade("install", "other")
    assert (done.code, "was signed by" in done.err) == (5, True)


def test_the_first_signer_is_remembered(place: Place) -> None:
    make(place.cwd / "src", "mine")
    for name in ("first", "second"):
        place.vade("keygen", name)
    place.vade("sign", "src/mine", "--key", "first")
    assert place.vade("install", "src").code == 0
    make(place.cwd / "src", "mine", "two")
    place.vade("sign", "src/mine", "--key", "second")
    other = place.vade("install", "src", "--force")
    assert (other.code, "was signed by" in other.err) == (5, True)
    (place.cwd / "src/mine/skill.sig").unlink()
    assert "signed by no key" in place.vade("update").err
    place.vade("sign", "src/mine", "--key", str(place.home / ".agent/keys/first.pem"))
    assert place.vade("update").code == 0
    place.vade("sign", "src/mine", "--key", "second")
    (place.home / ".agent/trusted-keys").mkdir()
    (place.home / ".agent/keys/second.pub").rename(place.home / ".agent/trusted-keys/second.pub")
    assert place.vade("update").code == 0  # a key that the user trusts may follow


def test_a_file_among_the_trusted_keys_that_is_none(tmp_path: Path) -> None:
    _, public, key_id = new_key(tmp_path / "keys", "a")
    assert trusted_keys(tmp_path / "nowhere") == ()
    (found,) = trusted_keys_of(tmp_path, public.read_bytes())
    assert (found[0], id_of(found[1])) == ("a", key_id)
    with pytest.raises(ConfigError, match="not a public key"):
        trusted_keys_of(tmp_path, b"nonsense")
    with pytest.raises(ConfigError, match="not a private key"):
        private_key(public)


def trusted_keys_of(place: Path, data: bytes) -> Trusted:
    (place / "trusted").mkdir(exist_ok=True)
    (place / "trusted/a.pub").write_bytes(data)
    return trusted_keys(place / "trusted")


Private = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey


def oms(files: list[SkillFile], key: Private, material: dict[str, Any], **changes: Any) -> bytes:
    """A bundle as OpenSSF Model Signing writes it."""
    whole = hashlib.sha256(b"".join(bytes.fromhex(file.sha256) for file in files)).hexdigest()
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": "skill", "digest": {"sha256": whole}}],
        "predicateType": OMS_PREDICATE_TYPE,
        "predicate": {
            "serialization": {"method": "files", "hash_type": "sha256", "ignore_paths": [".gitignore"]},
            "resources": [{"name": f.path, "digest": f.sha256, "algorithm": "sha256"} for f in files],
        },
    } | changes
    payload = json.dumps(statement).encode()
    message = encoded(PAYLOAD_TYPE, payload)
    made = (
        key.sign(message)
        if isinstance(key, ed25519.Ed25519PrivateKey)
        else key.sign(message, ec.ECDSA(hashes.SHA256()))
    )
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"sig": base64.b64encode(made).decode(), "keyid": ""}],
    }
    kind = "application/vnd.dev.sigstore.bundle.v0.3+json"
    bundle = {"mediaType": kind, "verificationMaterial": material, "dsseEnvelope": envelope}
    return json.dumps(bundle).encode()


HINT = {"publicKey": {"hint": hashlib.sha256(public_text(KEY.public_key())).hexdigest()}, "tlogEntries": []}


def test_oms_with_a_key() -> None:
    trusted = (("them", KEY.public_key()),)
    found = oms_signer(oms(FILES, KEY, HINT), [*FILES, SkillFile(".gitignore", "0", 1)], trusted, place="x")
    assert found.trusted_as == "them"
    assert oms_signer(oms(FILES, KEY, HINT), FILES, (), place="x").trusted_as is None
    other = ed25519.Ed25519PrivateKey.generate()
    for data, files in (
        (oms(FILES, other, HINT), FILES),
        (oms(FILES, KEY, HINT), FILES[:1]),
        (oms(FILES, KEY, HINT, subject=[{"name": "x", "digest": {"sha256": "0" * 64}}]), FILES),
        (oms(FILES, KEY, HINT, predicate={"resources": 1}), FILES),
        (oms(FILES, KEY, HINT, predicateType="https://example.org/x"), FILES),
    ):
        with pytest.raises(IntegrityFailed):
            oms_signer(data, files, trusted, place="x")


def test_oms_with_a_certificate() -> None:
    """Certificates are not followed: such a signature is by a key that nobody trusts, but it must match."""
    raw = {"rawBytes": base64.b64encode(b"0" * 9).decode()}
    trusted = (("me", KEY.public_key()),)
    for material in ({"certificate": raw}, {"x509CertificateChain": {"certificates": [raw]}}, {}):
        found = oms_signer(oms(FILES, KEY, material), FILES, trusted, place="x")
        assert (found.identity, found.trusted_as) == ("", None)
        with pytest.raises(IntegrityFailed, match="does not match"):
            oms_signer(oms(FILES, KEY, material), FILES[:1], trusted, place="x")


@pytest.mark.parametrize(("kind", "name"), [("by-key", "them"), ("by-cert", None)])
def test_what_model_signing_itself_made(tmp_path: Path, kind: str, name: str | None) -> None:
    """Signatures by model_signing 1.1.1, made once with its own command."""
    data = Path(__file__).with_name("data")
    (tmp_path / "trusted").mkdir()
    (tmp_path / "trusted/them.pub").write_bytes((data / "them.pub").read_bytes())
    (tmp_path / "skill/scripts").mkdir(parents=True)
    document = "---\nname: signed\ndescription: A skill that another tool signed.\n---\n# Body\n"
    (tmp_path / "skill/SKILL.md").write_text(document)
    (tmp_path / "skill/scripts/run.sh").write_text("echo signed\n")
    signature = (data / f"{kind}.oms.sig").read_bytes()
    trusted = trusted_keys(tmp_path / "trusted")
    found = oms_signer(signature, files_of(tmp_path / "skill"), trusted, place="x")
    assert found.trusted_as == name
    (tmp_path / "skill/SKILL.md").write_text(document + "more\n")
    with pytest.raises(IntegrityFailed, match=r"does not match 'SKILL.md'"):
        oms_signer(signature, files_of(tmp_path / "skill"), trusted, place="x")


@pytest.mark.extras
def test_model_signing_itself(place: Place) -> None:
    """Both ways with the command of that library, if it is there."""
    command = shutil.which("model_signing")
    if command is None:
        pytest.skip("the command model_signing is not installed")
    skill = make(place.cwd / "src", "mine")
    made = place.vade("keygen", "--ecdsa", "--trust", "--json").json
    names = [str(skill), "--signature", str(skill / "skill.oms.sig")]

    def theirs(step: str, *key: str) -> int:
        return subprocess.run(
            [command, step, "key", *names, *key], capture_output=True, check=False
        ).returncode

    assert place.vade("sign", str(skill), "--oms").code == 0
    assert theirs("verify", "--public_key", made["public"]) == 0
    (skill / "scripts/run.sh").write_text("echo swapped\n")
    assert theirs("verify", "--public_key", made["public"]) == 1
    (skill / "skill.oms.sig").unlink()
    assert theirs("sign", "--private_key", made["private"]) == 0
    assert place.vade("install", "src", "--require-signature").code == 0
    (skill / "scripts/run.sh").write_text("echo swapped again\n")
    assert place.vade("install", "src", "--force").code == 5


def test_oms_in_a_skill_that_is_installed(place: Place) -> None:
    skill = make(place.cwd / "src", "mine")
    key = private_key(Path(place.vade("keygen", "--trust", "--json").json["private"]))
    (skill / "skill.oms.sig").write_bytes(oms(list(files_of(skill)), key, HINT))
    assert place.vade("install", "src", "--require-signature").code == 0
    (skill / "SKILL.md").write_text((skill / "SKILL.md").read_text() + "more\n")
    assert place.vade("install", "src", "--force").code == 5
