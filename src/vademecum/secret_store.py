"""Store a user's secrets for skills and models in the system's keyring, or in a file only they can read."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from vademecum.context import Context
from vademecum.errors import ConfigError, FileRefused
from vademecum.files import read_own, writable, write_atomic
from vademecum.masking import MIN_SECRET_CHARS

SERVICE = "vademecum"
MAX_STORE_BYTES = 16 * 1024 * 1024
MAX_VALUE_CHARS = 64 * 1024

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Variables that control which program starts, what it loads or trusts, or where it looks for files.
_STEERING = re.compile(
    r"PATH|HOME|SHELL|USER|LOGNAME|PWD|OLDPWD|IFS|ENV|TERM|TMPDIR|TMP|TEMP|LANG|LANGUAGE|LC_.*|TZ|EDITOR|VISUAL"
    r"|PAGER|LD_.*|DYLD_.*|GCONV_PATH|GLIBC_TUNABLES|MALLOC_.*|BASH_ENV|BASHOPTS|BASH_FUNC.*|SHELLOPTS|ZDOTDIR"
    r"|PS[0-4]|PROMPT_COMMAND|PYTHON.*|VIRTUAL_ENV|NODE_(?:OPTIONS|PATH|EXTRA_CA_CERTS|TLS.*|REPL.*)|PERL5?(?:LIB|OPT)"
    r"|PERL5DB|RUBY(?:OPT|LIB|PATH)|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH|LUA_(?:INIT|C?PATH).*"
    r"|PHPRC|PHP_INI_SCAN_DIR|DOTNET_STARTUP_HOOKS|GIT_(?:SSH|CONFIG|EXEC|EDITOR|PAGER|ASKPASS|DIR|WORK|EXTERNAL).*"
    r"|XDG_.*|.*_PROXY|SSL_CERT_.*|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|CURL_HOME|VADE_.*",
    re.IGNORECASE,
)


def name_problem(name: str) -> str:
    """Return why a name cannot be used for a secret, or an empty text.

    >>> name_problem("CANVA_TOKEN"), name_problem("LD_PRELOAD")
    ('', 'it would change how programs start')
    """
    if not _NAME.fullmatch(name):
        return "it is not the name of an environment variable (letters, digits and underscores)"
    return "it would change how programs start" if _STEERING.fullmatch(name) else ""


def system_keyring() -> Any:
    """Return the system's keyring, if the extra ``keyring`` is installed and finds one that is safe."""
    with contextlib.suppress(Exception):  # backends can raise anything; the file is used instead
        import keyring  # noqa: PLC0415 - an extra

        found = keyring.get_keyring()
        if found.priority >= 1:
            return found
    return None


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """One stored secret: its name, the skill it is for (none: the models), and where its value is."""

    name: str
    skill: str | None
    place: Literal["keyring", "file"]

    @property
    def purpose(self) -> str:
        """Its owner in words: a skill or the models."""
        return "the models" if self.skill is None else f"the skill {self.skill}"

    def to_json(self) -> dict[str, Any]:
        """Return the secret as ``vade secrets list`` prints it, without its value."""
        return {"name": self.name, "skill": self.skill, "models": self.skill is None, "place": self.place}


class _Entry(msgspec.Struct, frozen=True):
    name: str
    skill: str | None
    value: str | None  # none: in the keyring

    @property
    def username(self) -> str:
        return f"models/{self.name}" if self.skill is None else f"skill/{self.skill}/{self.name}"

    @property
    def public(self) -> StoredSecret:
        return StoredSecret(self.name, self.skill, "keyring" if self.value is None else "file")


class _Content(msgspec.Struct, frozen=True):
    secrets: tuple[_Entry, ...] = ()
    version: Literal[1] = 1


class SecretStore:
    """The secrets of one user. Several processes can change it at the same time.

    >>> store = SecretStore(Context.current(), keyring=lambda: None)
    >>> store.set("CANVA_TOKEN", "correct-horse", skill="canva").place
    'file'
    >>> store.get("CANVA_TOKEN", skill="canva"), store.get("CANVA_TOKEN", skill="other")
    ('correct-horse', None)
    >>> store.remove(store.list()[0]), store.list()
    (True, ())
    """

    def __init__(self, context: Context, *, keyring: Callable[[], Any] = system_keyring) -> None:
        self.path = context.home / ".agent" / "secrets.json"
        self._keyring = keyring

    def set(self, name: str, value: str, *, skill: str | None) -> StoredSecret:
        """Store a value for a skill, or for the models if ``skill`` is none; it replaces an earlier one.

        Raises ``ConfigError`` for a name or value that cannot be used.
        """
        if problem := name_problem(name):
            raise ConfigError(f"{name!r} cannot be the name of a secret: {problem}. Choose another name.")
        if len(value.strip()) < MIN_SECRET_CHARS:
            problem = f"it has fewer than {MIN_SECRET_CHARS} characters, too few to be recognised and masked"
        elif len(value) > MAX_VALUE_CHARS:
            problem = f"it has more than {MAX_VALUE_CHARS:,} characters"
        elif "\0" in value or value != value.encode("utf-8", "ignore").decode():
            problem = "it is not text"
        if problem:
            raise ConfigError(f"The value of {name} is not kept: {problem}.")
        entry = _Entry(name, skill, value)
        with self._locked():
            with contextlib.suppress(Exception):  # without one, or if it loses the value, the file is used
                keyring = self._keyring()
                keyring.set_password(SERVICE, entry.username, value)
                if keyring.get_password(SERVICE, entry.username) == value:
                    entry = _Entry(name, skill, None)
            others = (each for each in self._read() if each.username != entry.username)
            self._write((*others, entry))
        return entry.public

    def get(self, name: str, *, skill: str | None) -> str | None:
        """Return the value stored for a skill or, if ``skill`` is none, for the models."""
        return self.for_skill(skill, (name,)).get(name)

    def for_skill(self, skill: str | None, names: Iterable[str]) -> dict[str, str]:
        """Return the values stored for a skill under these names, by name."""
        wanted = frozenset(names)
        entries = self._read() if wanted else ()
        return {
            each.name: self._value(each) for each in entries if each.skill == skill and each.name in wanted
        }

    def list(self) -> tuple[StoredSecret, ...]:
        """Return the stored secrets without their values, sorted by name."""
        found = [each.public for each in self._read()]
        return tuple(sorted(found, key=lambda each: (each.name, each.skill or "")))

    def remove(self, secret: StoredSecret) -> bool:
        """Remove one secret; return whether it existed."""
        with self._locked():
            entries = self._read()
            gone = [each for each in entries if (each.name, each.skill) == (secret.name, secret.skill)]
            if gone:
                self._write(each for each in entries if each not in gone)
            for entry in (each for each in gone if each.value is None):
                with contextlib.suppress(Exception):  # it is not listed any more
                    self._keyring().delete_password(SERVICE, entry.username)
        return bool(gone)

    def _value(self, entry: _Entry) -> str:
        if entry.value is not None:
            return entry.value
        value: str | None = None
        why = "the extra 'keyring' is not installed, or finds none"
        try:
            keyring = self._keyring()
            if keyring is not None:
                value, why = keyring.get_password(SERVICE, entry.username), "it has no such value"
        except Exception as error:  # noqa: BLE001 - a backend can raise anything
            why = f"{type(error).__name__}: {error}"
        if value is None:
            text = f"The secret {entry.name} for {entry.public.purpose} cannot be read from the keyring"
            raise ConfigError(f"{text} ({why}): set it again with `vade secrets set`.")
        return value

    def _read(self) -> tuple[_Entry, ...]:
        try:
            data = read_own(self.path, cap=MAX_STORE_BYTES, private=True)
            return msgspec.json.decode(data, type=_Content).secrets
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except (OSError, FileRefused) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"The secrets in {self.path} cannot be read: {why}.") from error
        except msgspec.MsgspecError:  # which may quote what is there
            raise ConfigError(f"{self.path} is not a file of secrets: repair or remove it.") from None

    def _write(self, entries: Iterable[_Entry]) -> None:
        data = msgspec.json.encode(_Content(tuple(entries)))
        if len(data) > MAX_STORE_BYTES:
            raise ConfigError(f"The secrets in {self.path} are too many: remove some.")
        with writable(self.path):
            write_atomic(self.path, data, mode=0o600)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one process at a time change the file."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with writable(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path.with_suffix(".lock"), flags, 0o600)
        with open(descriptor, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
