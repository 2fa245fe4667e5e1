"""Masking: known values in each of their forms, and nothing else."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from vademecum.masking import MAX_MATCHES, MAX_PIECE_BYTES, MAX_SPAN_BYTES, Secrets
from vademecum.runs.record import masked

VALUE = 'c0rrect/horse+"battery" & stäple'
PEM = "-----BEGIN PRIVATE KEY-----\n" + "\n".join(f"MIIEvQIBADANBgkqhkiG9w0{n}" for n in range(9))
PEM += "\n-----END PRIVATE KEY-----\n"


def masking(*values: str) -> Secrets:
    secrets = Secrets({})
    secrets.add(values)
    return secrets


def streamed(secrets: Secrets, data: bytes, size: int) -> bytes:
    stream = secrets.stream()
    pieces = [stream.feed(data[start : start + size]) for start in range(0, len(data), size)]
    return b"".join([*pieces, stream.feed(b"", last=True)])


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        base64.b64encode(VALUE.encode()).decode(),
        base64.urlsafe_b64encode(VALUE.encode()).decode(),
        base64.urlsafe_b64encode(VALUE.encode()).decode().rstrip("="),
        VALUE.encode().hex(),
        VALUE.encode().hex().upper(),
        quote(VALUE),
        quote(VALUE, safe=""),
        re.sub("%..", lambda found: found[0].lower(), quote(VALUE, safe="")),
        quote_plus(VALUE),
        json.dumps(VALUE)[1:-1],
        json.dumps(VALUE, ensure_ascii=False)[1:-1],
        "\n".join(VALUE),
        "\r\n".join(VALUE),
    ],
)
def test_every_form_is_masked(form: str) -> None:
    secrets = masking(VALUE)
    text = f"before «{form}» behind"
    assert secrets.mask_values(text) == "before «[secret]» behind"
    assert secrets.masks(text.encode())
    assert streamed(secrets, text.encode(), 1).decode() == "before «[secret]» behind"


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("behind", range(4))
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_of_a_longer_text(before: int, behind: int, encode: Callable[[bytes], bytes]) -> None:
    whole = encode(b"\xfe" * before + VALUE.encode() + b"\xff" * behind).decode()
    masked = masking(VALUE).mask_values(whole)
    assert "[secret]" in masked
    # What remains beside the mask are the neighbours, and at most one character shared with each.
    assert len(masked.replace("[secret]", "").rstrip("=")) <= before * 8 // 6 + behind * 8 // 6 + 3


@pytest.mark.parametrize("width", [16, 64, 76])
def test_wrapped_base64(width: int) -> None:
    value = "".join(map(str, range(60)))
    encoded = base64.b64encode(b"user:" + value.encode() + b" and more than that").decode()
    for end in ("\n", "\r\n"):
        wrapped = end.join(encoded[start : start + width] for start in range(0, len(encoded), width))
        masked = masking(value).mask_values(wrapped)
        assert masked.count("[secret]") == 1
        assert len(masked) < 50


def test_a_key_of_several_lines() -> None:
    secrets = masking(PEM)
    for line in PEM.splitlines()[1:-1]:
        assert secrets.mask_values(f"  {line}\n") == "  [secret]\n"
    assert secrets.mask_values(f"x {PEM} y") == "x [secret]\n y"
    assert secrets.mask_values(json.dumps({"key": PEM})) == '{"key": "[secret]\\n"}'
    assert secrets.mask_values("see -----BEGIN PRIVATE KEY----- there").startswith("see -----BEGIN")
    assert "MII" not in secrets.mask_values(base64.b64encode(f"ab{PEM}".encode()).decode())


def test_overlapping_and_nested_values() -> None:
    secrets = masking("abcdefghij", "ghijklmnop", "cdefghij", "abcdefghijkl")
    assert secrets.mask_values("<abcdefghijklmnop>") == "<[secret]>"
    assert secrets.mask_values("<abcdefghij> <cdefghij>") == "<[secret]> <[secret]>"
    assert secrets.mask_values("<abcdefghijk>") == "<[secret]k>"
    for size in range(1, 9):
        assert streamed(secrets, b"<abcdefghijklmnop> cdefghi", size) == b"<[secret]> cdefghi"


def test_a_part_of_a_long_value_is_masked() -> None:
    value = os.urandom(300).hex()
    assert masking(value).mask_values(f"<{value}>") == "<[secret]>"
    cut = masking(value).mask_values(value[: 4 * MAX_PIECE_BYTES])
    assert len(cut) < len("[secret]") + MAX_PIECE_BYTES


def test_bytes_that_are_no_text() -> None:
    secrets = masking("correct-horse", "caf\udce9-au-lait")
    assert secrets.mask_bytes(b"\xff\xfecorrect-horse\x80") == b"\xff\xfe[secret]\x80"
    assert secrets.mask_bytes(b"\xc3caf\xe9-au-lait") == b"\xc3[secret]"
    assert secrets.mask_values("a caf\udce9-au-lait or caf\ufffd-au-lait") == "a [secret] or [secret]"
    assert secrets.mask_values("half \ud800 correct-horse") == "half \ud800 [secret]"


def test_repetitive_values_end_soon() -> None:
    secrets = masking("a" * 8, "ab" * 40)
    assert secrets.mask_bytes(b"x" + b"a" * 300_000) == b"x[secret]"
    assert secrets.mask_bytes(b"a\n" * 100_000) == b"[secret]"
    many = b"aaaaaaaa " * (MAX_MATCHES + 3)
    masked = b"[secret] " * MAX_MATCHES + b"[secret]"
    assert secrets.mask_bytes(many + b"the rest") == masked
    assert streamed(secrets, many + b"the rest", 99_991) == masked


def test_line_ends_without_end() -> None:
    secrets = masking("correct-horse")
    data = b"correct" + b"\n" * (2 * MAX_SPAN_BYTES) + b"-horse"
    assert secrets.mask_bytes(data) == streamed(secrets, data, 1000) == data


def test_innocent_text_stays() -> None:
    secrets = Secrets(
        {
            "GIT_AUTHOR_NAME": "Ada Lovelace",
            "SERVICE": "http://localhost:8080/path/to",
            "SHORT_KEY": "abc",
            "EDITOR": "a plain value",
        }
    )
    for text in (
        "Ada Lovelace",
        "abc",
        "a plain value",
        "http://localhost:8080/path/to",
        "https://example.org:8443/abcdefgh?x=1",
        "see https://docs.example.org:443/a:b@c",
    ):
        assert masked(text, secrets) == secrets.mask_values(text) == text
    assert not secrets.masks(b"Ada Lovelace")


def test_values_can_be_added_from_threads() -> None:
    secrets = Secrets({"A_TOKEN": "from-the-environment"})
    values = [f"value-number-{number:03}" for number in range(40)]
    threads = [threading.Thread(target=secrets.add, args=([value],)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert secrets.added == frozenset(values)
    text = " ".join(["from-the-environment", *values])
    assert secrets.mask_values(text) == " ".join(["[secret]"] * 41)


def test_a_file_is_masked_in_place(tmp_path: Path) -> None:
    secrets = masking("correct-horse")
    file = tmp_path / "stdout"
    data = b"\xff" * (1024 * 1024 - 5) + b"correct-horse" + b"\xfe" * (1024 * 1024)
    file.write_bytes(data)
    file.chmod(0o640)
    assert secrets.masks_file(file)
    secrets.mask_file(file)
    assert file.read_bytes() == data.replace(b"correct-horse", b"[secret]")
    assert (file.stat().st_mode & 0o777, not secrets.masks_file(file)) == (0o640, True)
    before = file.stat()
    secrets.mask_file(file)
    assert file.stat().st_ino == before.st_ino  # nothing to mask, nothing written
    assert list(tmp_path.iterdir()) == [file]


def test_without_secrets_nothing_is_imported() -> None:
    code = "import sys; from vademecum.masking import Secrets; s = Secrets({'A_KEY': 'correct-horse'});"
    code += (
        "assert s.mask_values('x' * 100_000) and not s.masks(b'y' * 100_000); assert 're2' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_secret_in_two_prints() -> None:
    stream = masking("correct-horse").stream()
    shown = [stream.feed(b"it is correct"), stream.feed(b"-hor"), stream.feed(b"se.\nnext", last=True)]
    assert shown == [b"it is ", b"", b"[secret].\nnext"]


def test_hex_of_longer_data() -> None:
    longer = binascii.hexlify(b"\0\1" + b"correct-horse" + b"\2").decode()
    assert masking("correct-horse").mask_values(longer) == "0001[secret]02"
