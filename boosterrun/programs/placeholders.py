"""Fill ``{name}`` in the command lines and variables of a command workload.

On the baseline there is no ACF: ``{acf}`` is empty there, ``{acf_flags}`` no words at all, and what hands an
ACF to a compiler (``--apply-controls={acf}``, with the ``-Xptxas`` before it) disappears.
"""

from __future__ import annotations

import json
import re
import shlex
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from boosterrun.errors import UsageError

NAMES = ("shape", "acf", "acf_id", "acf_flags", "seed", "work", "side")

_PASS = ("-Xptxas", "--ptxas-options")
_FLAG = re.compile(r"(?:(?:-Xptxas|--ptxas-options)[ =])?--apply-controls[ =]\{acf\}")


@dataclass(frozen=True)
class Values:
    """What the placeholders stand for on one side, for one shape. ``acf`` is empty on the baseline.

    Raises UsageError when a parameter of the shape has the name of a built-in placeholder.
    """

    shape: str
    params: Mapping[str, Any]
    acf: str
    acf_id: str
    seed: int
    work: str
    side: str
    words: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        if taken := sorted(set(self.params) & set(NAMES)):
            raise UsageError(
                f"workload.shapes.{self.shape}: {taken[0]} is the name of a placeholder",
                "Rename the parameter",
            )
        words = {name: _text(value) for name, value in self.params.items()}
        words |= {"shape": self.shape, "acf": self.acf, "acf_id": self.acf_id, "seed": str(self.seed)}
        words |= {"work": self.work, "side": self.side, "acf_flags": " ".join(self.flags)}
        object.__setattr__(self, "words", words)

    @property
    def flags(self) -> list[str]:
        """Arguments for nvcc that hand the ACF to ptxas; none on the baseline."""
        return ["-Xptxas", f"--apply-controls={self.acf}"] if self.acf else []

    def fill(self, template: str, where: str, *, quote: bool = False) -> str:
        """Replace every placeholder; ``{{`` and ``}}`` are literal braces. ``quote`` is for a shell's sake.

        Raises UsageError, beginning with ``where``, for an unknown placeholder or a lonely brace.
        """
        if not self.acf:
            template = _FLAG.sub("", template)
        try:
            parts = list(string.Formatter().parse(template))
        except ValueError as error:
            raise UsageError(
                f"{where}: {template!r}: {error}", "Write literal braces twice: {{ }}"
            ) from error
        filled = []
        for literal, name, spec, conversion in parts:
            filled.append(literal)
            if name is None:
                continue
            if name not in self.words or spec or conversion:
                known = ", ".join(f"{{{n}}}" for n in (*NAMES, *self.params))
                whole = (
                    "{" + name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "") + "}"
                )
                raise UsageError(
                    f"{where}: unknown placeholder {whole}",
                    f"Known: {known}. Write literal braces twice: {{{{ }}}}",
                )
            word = self.words[name]
            filled.append(shlex.quote(word) if quote and name != "acf_flags" else word)
        return "".join(filled)

    def argv(self, command: Any, where: str, *, shell: bool = False) -> list[str]:
        """Return the arguments of a command: a list, or a string split as a shell would, but run by none.

        With ``shell`` a string is given to bash, the values quoted. Raises UsageError.
        """
        if shell:
            if not isinstance(command, str):
                raise UsageError(
                    f"{where} must be a string when workload.shell is true", "Write it in one string"
                )
            return ["/bin/bash", "-c", self.fill(command, where, quote=True)]
        filled: list[str] = []
        for element in _elements(command, where):
            if element == "{acf_flags}":
                filled += self.flags
            elif not self.acf and element == "{acf}" and filled[-1:] == ["--apply-controls"]:
                filled.pop()
                _drop(filled, _PASS)
            elif not self.acf and _FLAG.fullmatch(element):
                _drop(filled, _PASS)
            else:
                filled.append(self.fill(element, where))
        if not filled or not filled[0]:
            raise UsageError(f"{where} is empty", "Name a program")
        return filled

    def variable(self, template: str, where: str) -> str | None:
        """Return an environment variable's value; None (remove it) if only the ACF would have filled it."""
        value = self.fill(template, where)
        return value if value.strip() or not template.strip() else None


def _drop(filled: list[str], flags: tuple[str, ...]) -> None:
    """Take the last element away if it is one of ``flags``."""
    if filled and filled[-1] in flags:
        filled.pop()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _elements(command: Any, where: str) -> list[str]:
    if isinstance(command, str):
        try:
            return shlex.split(command)
        except ValueError as error:
            raise UsageError(
                f"{where}: {error}", "Balance the quotes, or write a list of arguments"
            ) from error
    if not isinstance(command, list | tuple):
        raise UsageError(f"{where} must be a list of arguments", "For example [./bench, --size, '{M}']")
    for element in command:
        if not isinstance(element, str | int | float):
            advice = "Arguments are strings or numbers; in YAML, quote placeholders: '{acf}'"
            raise UsageError(f"{where}: {element!r} is not an argument", advice)
    return [_text(element) for element in command]
