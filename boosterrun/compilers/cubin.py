"""Read what a compiler left in a cubin: the options it ran with, and the machine code of each kernel."""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path

from boosterrun.errors import RunError

_EM_CUDA = 190
_SHT_NOBITS = "SHT_NOBITS"
_TEXT = ".text."
_NOTE = ".note.nv.tkinfo"
_NOTE_HEADER = struct.Struct("<3I")
_TOOL_OFFSETS = struct.Struct(
    "<6I"
)  # format, then offsets into the strings: file, tool, version, build, options
_INSTRUCTION = struct.Struct("<H14x")  # since sm_70 an instruction is 16 bytes, its opcode the low 12 bits
_OPCODE_MASK = 0xFFF
_NOP = 0x918
_APPLIED = re.compile(r"(?:^|\s)--?apply-controls[\s=]+(\S+)")


@dataclass(frozen=True)
class Tool:
    """A tool that made the cubin, as its note says: ``name`` (ptxas, nvlink), ``version`` and ``options``."""

    name: str
    version: str
    options: str


@dataclass(frozen=True)
class Kernel:
    """The machine code of one entry function (with the device functions that it calls), padding included."""

    name: str
    code: bytes

    @cached_property
    def code_sha256(self) -> str:
        """Hexadecimal sha256 of the code."""
        return hashlib.sha256(self.code).hexdigest()

    @property
    def code_bytes(self) -> int:
        """Size of the code in bytes."""
        return len(self.code)

    @cached_property
    def sass_instructions(self) -> int:
        """Number of instructions that are not NOP (padding is NOP)."""
        whole = self.code[: len(self.code) - len(self.code) % _INSTRUCTION.size]
        return sum(word & _OPCODE_MASK != _NOP for (word,) in _INSTRUCTION.iter_unpack(whole))


@dataclass(frozen=True)
class Cubin:
    """What was read from a cubin.

    Attributes:
        kernels: sorted by name.
        tools: in the order of the notes; empty for compilers that leave none (before CUDA 13).
    """

    kernels: tuple[Kernel, ...]
    tools: tuple[Tool, ...]

    @property
    def options(self) -> str | None:
        """The options that ptxas ran with; None when the cubin has no note of it."""
        return next((tool.options for tool in self.tools if tool.name == "ptxas"), None)

    @property
    def tool_version(self) -> str | None:
        """The version text of the ptxas that made it; None when the cubin has no note of it."""
        return next((tool.version for tool in self.tools if tool.name == "ptxas"), None)

    @cached_property
    def code_sha256(self) -> str:
        """Hexadecimal sha256 over names and code of all kernels: equal means that the same code would run."""
        digest = hashlib.sha256()
        for kernel in self.kernels:
            digest.update(f"{kernel.name}\0{kernel.code_bytes}\0".encode())
            digest.update(kernel.code)
        return digest.hexdigest()


def read(data: bytes | Path) -> Cubin:
    """Read a cubin from bytes or from a file.

    Raises RunError when it cannot be read or is no CUDA object file.
    """
    where = "the cubin"
    if isinstance(data, Path):
        where = str(data)
        try:
            data = data.read_bytes()
        except OSError as error:
            raise RunError(f"cannot read {where}: {error.strerror}") from error
    try:
        return _parse(data)
    except RunError:
        raise
    except Exception as error:  # damaged input makes the ELF reader raise errors of many kinds
        advice = "Check that the disk is not full and that the compiler is NVIDIA's"
        raise RunError(f"{where} is damaged or no cubin ({type(error).__name__}: {error})", advice) from error


def applied_controls(cubin: Cubin) -> list[str]:
    """Return the paths of all ``-apply-controls`` options in the notes, in order."""
    return [path for tool in cubin.tools for path in _APPLIED.findall(tool.options)]


def _parse(data: bytes) -> Cubin:
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - takes some 70 ms, and not every command reads cubins

    elf = ELFFile(BytesIO(data))
    if elf.header["e_machine"] not in ("EM_CUDA", _EM_CUDA):
        raise ValueError(f"it is for machine {elf.header['e_machine']}")
    kernels: list[Kernel] = []
    tools: list[Tool] = []
    for section in elf.iter_sections():
        if section.name.startswith(_TEXT) and section["sh_type"] != _SHT_NOBITS:
            code = section.data()
            if len(code) != section["sh_size"]:
                raise ValueError(f"section {section.name} is cut off")
            kernels.append(Kernel(section.name.removeprefix(_TEXT), code))
        elif section.name == _NOTE:
            tools += _tools(section.data())
    return Cubin(tuple(sorted(kernels, key=lambda kernel: kernel.name)), tuple(tools))


def _tools(notes: bytes) -> list[Tool]:
    tools = []
    position = 0
    while position < len(notes):
        name_size, size, _ = _NOTE_HEADER.unpack_from(notes, position)
        start = position + _NOTE_HEADER.size + _aligned(name_size)
        tools.append(_tool(notes[start : start + size]))
        position = start + _aligned(size)
    return tools


def _tool(note: bytes) -> Tool:
    _, _, name, version, _, options = _TOOL_OFFSETS.unpack_from(note)
    strings = note[_TOOL_OFFSETS.size :]

    def text(offset: int) -> str:
        return strings[offset : strings.index(b"\0", offset)].decode(errors="surrogateescape")

    return Tool(text(name), text(version), text(options).strip())


def _aligned(size: int) -> int:
    return (size + 3) & ~3
