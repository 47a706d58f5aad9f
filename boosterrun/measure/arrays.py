"""The arrays in what a case returns: found, kept in a private copy, poisoned; where they are, on a GPU too.

Arrays are duck-typed: NumPy, torch (any device), and whatever NumPy can convert.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

_KINDS = {"f": "float", "i": "int", "u": "int", "b": "bool", "c": "complex"}
# NumPy has no such types; float32 holds every value of theirs.
_NARROW = ("bfloat", "float8")


@dataclass(frozen=True)
class Array:
    """One output: ``data`` is a NumPy array with the exact values, or a torch tensor where it was.

    ``kind`` is ``float``, ``int``, ``bool`` or ``complex``.
    """

    name: str
    dtype: str
    data: Any
    kind: str

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of its axes."""
        return tuple(self.data.shape)

    @property
    def size(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)

    @property
    def on_host(self) -> bool:
        """Whether it is a NumPy array."""
        return isinstance(self.data, np.ndarray)

    def host(self) -> Array:
        """Return it as a NumPy array."""
        return self if self.on_host else _host(self.name, self.dtype, self.data)


def leaves(value: Any, name: str = "output") -> list[tuple[str, Any]]:
    """Return the arrays and numbers in nested lists, tuples and dicts, with names like ``output[0]['lse']``.

    Raises TypeError for anything else.
    """
    if isinstance(value, Mapping):
        return [leaf for key, item in value.items() for leaf in leaves(item, f"{name}[{key!r}]")]
    if isinstance(value, list | tuple):
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, f"{name}[{index}]")]
    if isinstance(value, bool | int | float | complex) or (
        hasattr(value, "dtype") and hasattr(value, "shape")
    ):
        return [(name, value)]
    raise TypeError(f"{name} is {type(value).__name__}: neither an array nor a number")


def look(value: Any) -> list[Array]:
    """Return every array in ``value``; torch tensors are not copied. Raises TypeError for other types."""
    return [_array(name, leaf, private=False) for name, leaf in leaves(value)]


def keep(value: Any) -> list[Array]:
    """Return a private copy of every array in ``value``, where it is. Raises TypeError for other types."""
    return [_array(name, leaf, private=True) for name, leaf in leaves(value)]


def _array(name: str, array: Any, *, private: bool) -> Array:
    dtype = str(getattr(array, "dtype", type(array).__name__)).removeprefix("torch.")
    kind = _torch_kind(array, dtype)
    if kind is None:
        return _host(name, dtype, array)
    data = array.detach()
    if private:
        try:
            data = data.clone(memory_format=sys.modules["torch"].contiguous_format)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            return _host(name, dtype, array)
    return Array(name, dtype, data, kind)


def _torch_kind(array: Any, dtype: str) -> str | None:
    """Return the kind of a tensor that torch can compare where it is; None for everything else."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor) or array.layout != torch.strided:
        return None
    if dtype.startswith(("float", "bfloat")):
        return "float"
    if dtype.startswith("complex"):
        return "complex"
    # torch cannot compare the unsigned types beyond uint8.
    return {"bool": "bool", "uint8": "int"}.get(dtype, "int" if dtype.startswith("int") else None)


def _host(name: str, dtype: str, array: Any) -> Array:
    if hasattr(array, "detach") and hasattr(array, "cpu"):  # torch
        array = array.detach().cpu()
        if dtype.startswith(_NARROW):
            array = array.float()
        data = np.array(array.resolve_conj().resolve_neg().numpy(), copy=True)
    elif hasattr(array, "get") and not isinstance(array, np.ndarray):  # CuPy
        data = np.asarray(array.get())
    else:
        data = np.array(array, copy=True)
    if data.dtype.kind == "V" and dtype.startswith(_NARROW):
        data = data.astype(np.float32)
    if data.dtype.kind not in _KINDS:
        raise TypeError(f"{name} has the type {dtype}, which cannot be compared")
    return Array(name, dtype, data, _KINDS[data.dtype.kind])


def out_of_memory(error: Exception) -> bool:
    """Return whether a GPU had no room for a copy: the host may have."""
    return type(error).__name__ == "OutOfMemoryError"


def poison(value: Any) -> int:
    """Fill the arrays in ``value`` with NaN, the largest integer, or True; return how many were filled.

    Numbers, read-only arrays and arrays whose elements share memory stay as they are.
    """
    return sum(_poison(array) for _, array in leaves(value))


@contextmanager
def withheld(value: Any, kept: list[Array]) -> Iterator[int]:
    """Poison the arrays in ``value``, whose private copies are ``kept``, for the block; gives how many."""
    filled = [(leaf, copy) for (_, leaf), copy in zip(leaves(value), kept, strict=True) if _poison(leaf)]
    try:
        yield len(filled)
    except BaseException:
        with suppress(Exception):  # a GPU that is lost has nothing to give back
            _give_back(filled)
        raise
    _give_back(filled)


def _give_back(filled: list[tuple[Any, Array]]) -> None:
    for leaf, copy in filled:
        if isinstance(leaf, np.ndarray):
            leaf[...] = copy.data
        else:
            leaf.detach().copy_(sys.modules["torch"].as_tensor(copy.data))


def _poison(array: Any) -> bool:
    dtype = str(getattr(array, "dtype", "")).removeprefix("torch.")
    try:
        if isinstance(array, np.ndarray):
            array.fill(_worst(dtype, np.iinfo))
        elif hasattr(array, "detach"):
            torch = sys.modules["torch"]
            flat = array.detach()
            if dtype.startswith("float8"):  # all ones is NaN, or the largest value where NaN is elsewhere
                flat.view(torch.uint8).fill_(0xFF)
            else:
                flat.fill_(_worst(dtype, lambda _: torch.iinfo(array.dtype)))
        else:
            return False
    except (ValueError, RuntimeError, TypeError) as error:
        if "CUDA" in str(error):
            raise
        return False
    return True


def _worst(dtype: str, iinfo: Any) -> Any:
    if dtype == "bool":
        return True
    return int(iinfo(dtype).max) if "int" in dtype else math.nan
