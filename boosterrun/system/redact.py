"""Keep secrets out of everything that is written or said: tokens, passwords and keys.

What is secret is known by its name: a variable of the shell or of ``workload.env`` (`VARIABLE`), a setting,
an override or an option of a command (`SETTING`), the user in a URL. Once known, a value is hidden wherever
it turns up, in a compiler's or a program's words too. Numbers, paths and short or ordinary words are hidden
beside such a name only: else they would vanish from everything that a result says.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

T = TypeVar("T")

HIDDEN = "(not recorded)"
VARIABLE = re.compile(r"TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|SIGNATURE|^AWS_", re.IGNORECASE)
"""Names of variables whose values are never recorded."""

_WORDS = (
    r"(?:token|secret|passw(?:or)?d|passphrase|credentials?|authorization|cookie"
    r"|(?:api|access|secret|private|auth|signing|encryption)[_-]?key)"
)
_HINTS = ("token", "secret", "passw", "passphrase", "credential", "authorization", "cookie", "key")
SETTING = re.compile(rf"{_WORDS}$", re.IGNORECASE)
"""Names of settings whose values are never recorded: `token_layout` and `num_tokens` are none of them."""

_OPTION = re.compile(rf"--?[\w.-]*{_WORDS}", re.IGNORECASE)
_PAIR = re.compile(r"([-+~]*[\w.@/-]+)=(.+)", re.DOTALL)
# A number is a size; an interpolation says where the secret is, not what it is.
_OPEN = re.compile(r"|[-+.\d_]+|\$\{.*|true|false|null|none", re.IGNORECASE | re.DOTALL)
_ORDINARY = re.compile(r"[a-z][a-z_.-]{0,14}|[~./].*|[\d.:_-]{1,15}", re.DOTALL)
_SHORTEST = 6
# These search megabytes of output: each looks only a bounded number of characters back and forth.
_URL_USER = re.compile(r"(?<=://)[^/\s'\"<>]+(?=@)")
_BEARER = re.compile(r"(\b(?:bearer|basic) )[\w.~+/=-]{8,}", re.IGNORECASE)
_VALUE = r"(?!\$|\(not recorded\)|\d[\d._]*(?!\w))([^\s\"',;&)}\]]+)"
_ASSIGNED = re.compile(rf"({_WORDS}[\"']?=[\"']?|(?<!\S)--[\w-]{{0,40}}{_WORDS} ){_VALUE}", re.IGNORECASE)
# Only after capitals: "unexpected token: foo" is a compiler's.
_MAPPED = re.compile(r"((?:TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY)[\"']?\s{0,2}:\s{0,2}[\"']?)" + _VALUE)

_learned: set[str] = set()


def learn(config: Any) -> None:
    """Take note of every secret in a configuration: from now on it is hidden wherever it turns up."""
    tree(config, found=_learned)


def text(words: str) -> str:
    """Return the words without secrets."""
    return _without(words, _forms(_values()))


def _without(words: str, forms: Sequence[str]) -> str:
    if "://" in words:
        words = _URL_USER.sub(HIDDEN, words)
    for form in forms:
        words = words.replace(form, HIDDEN)
    lower = words.lower()  # to look for a word is a hundred times faster than to match its pattern
    if any(hint in lower for hint in _HINTS):
        words = _ASSIGNED.sub(rf"\g<1>{HIDDEN}", words)
        words = _MAPPED.sub(rf"\g<1>{HIDDEN}", words)
    if "bearer " in lower or "basic " in lower:
        words = _BEARER.sub(rf"\g<1>{HIDDEN}", words)
    return words


def tree(value: T, *, found: set[str] | None = None) -> T:
    """Return nested dicts, lists and tuples without secrets, by name and by value; `found` gets them."""
    return _Walk(found).value(value, "", SETTING)  # type: ignore[no-any-return]


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables as they may be recorded: whatever has a name like `VARIABLE` is hidden."""
    return {name: HIDDEN if VARIABLE.search(name) else text(value) for name, value in environment.items()}


def argv(words: Sequence[str]) -> list[str]:
    """Return a command line without secrets, after taking note of them as :func:`learn` does."""
    return tree(list(words), found=_learned)


def file(path: Path) -> None:
    """Take the secrets out of a text file, if there is one; it is removed if it cannot be rewritten."""
    try:
        data = path.read_bytes()
    except OSError:
        return
    old = data.decode(errors="surrogateescape")
    new = text(old)
    if new != old:
        try:
            path.write_bytes(new.encode(errors="surrogateescape"))
        except OSError:
            path.unlink(missing_ok=True)


class _Walk:
    def __init__(self, found: set[str] | None) -> None:
        self._found = found
        self._known = _forms(_values())  # once: asking the environment for each string took a tenth of a job

    def value(self, value: Any, name: str, secret: re.Pattern[str]) -> Any:
        if isinstance(value, str):
            if name and secret.search(name) and not _OPEN.fullmatch(value):
                self._note(value)
                return HIDDEN
            return self._text(value)
        if isinstance(value, Mapping):
            inner = VARIABLE if name in ("env", "variables") else SETTING
            return {self._key(key): self.value(item, str(key), inner) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._items(value))
        return value

    def _key(self, key: Any) -> Any:
        return self._text(key) if isinstance(key, str) else key

    def _items(self, items: Sequence[Any]) -> list[Any]:
        """The elements of a list, which may be arguments: ``--token X``, ``--token=X``, ``env.TOKEN=X``."""
        clean: list[Any] = []
        option = ""
        for item in items:
            pair = _PAIR.fullmatch(item) if isinstance(item, str) else None
            clean.append(self._pair(*pair.groups()) if pair else self.value(item, option, SETTING))
            option = item if isinstance(item, str) and _OPTION.fullmatch(item) else ""
        return clean

    def _pair(self, name: str, value: str) -> str:
        *above, last = name.split(".")
        secret = VARIABLE if above[-1:] == ["env"] else SETTING
        if secret.search(last) and not _OPEN.fullmatch(value):
            self._note(value.strip("'\""))
            return f"{name}={HIDDEN}"
        return self._text(f"{name}={value}")

    def _text(self, words: str) -> str:
        if self._found is not None:
            for pattern in (_ASSIGNED, _MAPPED):
                for match in pattern.finditer(words):
                    self._note(match[2])
            for match in _URL_USER.finditer(words):
                self._note(match[0].rpartition(":")[2])
        return _without(words, self._known)

    def _note(self, value: str) -> None:
        if self._found is not None and len(value) >= _SHORTEST and not _ORDINARY.fullmatch(value):
            self._found.add(value)


def _values() -> frozenset[str]:
    return _of_shell(tuple(os.environ.items())) | _learned


@functools.lru_cache(maxsize=4)
def _of_shell(variables: tuple[tuple[str, str], ...]) -> frozenset[str]:
    return frozenset(
        value
        for name, value in variables
        if len(value) >= _SHORTEST and VARIABLE.search(name) and not _ORDINARY.fullmatch(value)
    )


@functools.lru_cache(maxsize=16)
def _forms(values: frozenset[str]) -> tuple[str, ...]:
    """All values as they are and as URLs, JSON, Python and shells write them, the longest first."""
    ways = (
        str,
        lambda v: quote(v, safe="", errors="replace"),
        lambda v: json.dumps(v)[1:-1],
        lambda v: repr(v)[1:-1],
        shlex.quote,
    )
    return tuple(
        sorted({way(value) for value in values for way in ways}, key=lambda form: (-len(form), form))
    )
