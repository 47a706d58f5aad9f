"""Which keys a config may have: unknown ones are found, and the nearest known ones named."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from boosterrun.config import Config
from boosterrun.errors import UsageError


def check(cfg: DictConfig, overrides: Sequence[str] = ()) -> None:
    """Refuse keys that no schema knows, which Hydra lets pass when added with ``+``.

    Args:
        cfg: a composed job config. overrides: the command line, to say which of it is at fault.
    Raises UsageError. Dictionaries that are free by their type (shapes, options, env) are not looked into.
    """
    for key, known in _unknown(cfg, Config, ""):
        origin = next((f" (in '{o}')" for o in overrides if o.lstrip("+~").partition("=")[0] == key), "")
        raise unknown_key(key, known, origin)
    if "workload" in cfg and not dataclasses.is_dataclass(OmegaConf.get_type(cfg, "workload")):
        schemas = workload_schemas()
        adapter = OmegaConf.select(cfg, "workload.adapter", throw_on_missing=False)
        schema = adapter if adapter in schemas else "ADAPTER"
        raise UsageError(
            f"the workload has no schema: its adapter is {adapter}, of {', '.join(schemas)}",
            f"Begin its YAML with: defaults: [/schema/workload/{schema}@_here_, _self_]",
        )


def unknown_key(key: str, siblings: Iterable[str] = (), origin: str = "") -> UsageError:
    """The error for ``key``: which known key is meant, else which keys there are at its place."""
    parent, _, leaf = key.rpartition(".")
    known = list(known_keys())
    siblings = list(siblings) or [k for k in known if k.rpartition(".")[0] == parent]
    near = difflib.get_close_matches(leaf, [k.rpartition(".")[2] for k in siblings], n=1)
    if near:
        guess = f"{parent}.{near[0]}" if parent else near[0]
        return UsageError(f"unknown key '{key}'{origin}", f"Did you mean {guess}?")
    elsewhere = difflib.get_close_matches(leaf, [k.rpartition(".")[2] for k in known], n=1, cutoff=0.75)
    if elsewhere:
        meant = dict.fromkeys(k for k in known if k.rpartition(".")[2] == elsewhere[0])
        return UsageError(f"unknown key '{key}'{origin}", f"Did you mean {' or '.join(meant)}?")
    if not siblings:
        return UsageError(f"unknown key '{key}'{origin}", "See boosterrun --cfg all")
    place = f"under {parent}" if parent else "at the top"
    listed = ", ".join(k.rpartition(".")[2] for k in siblings)
    return UsageError(f"unknown key '{key}'{origin}", f"Keys {place}: {listed}")


def known_keys() -> Iterator[str]:
    """Every dotted key of every schema."""
    yield from _walk(Config, "")
    for schema in workload_schemas().values():
        yield from _walk(schema, "workload.")


def workload_schemas() -> dict[str, type]:
    """Adapter name -> dataclass, as registered under ``schema/workload``."""
    store = ConfigStore.instance()
    nodes = {name: store.load(f"schema/workload/{name}").node for name in store.list("schema/workload")}
    types = {name.removesuffix(".yaml"): OmegaConf.get_type(node) for name, node in nodes.items()}
    return {name: kind for name, kind in types.items() if kind is not None}


def did_you_mean(name: str, choices: Sequence[str], limit: int = 8) -> str:
    """Advice for a name that is none of ``choices``: the nearest one, or what there is (up to ``limit``)."""
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    if near:
        return f"Did you mean {near[0]}?"
    more = f", ... ({len(choices)} in all)" if len(choices) > limit else ""
    return f"There are: {', '.join(choices[:limit])}{more}" if choices else "There are none"


def _walk(schema: type, prefix: str) -> Iterator[str]:
    for name, kind in typing.get_type_hints(schema).items():
        yield prefix + name
        if dataclasses.is_dataclass(kind):
            yield from _walk(typing.cast(type, kind), f"{prefix}{name}.")


def _unknown(node: DictConfig, schema: type, prefix: str) -> Iterator[tuple[str, list[str]]]:
    """Unknown keys at and below ``node``, each with the keys known at its place."""
    hints: dict[str, Any] = typing.get_type_hints(schema)
    for name in map(str, node):
        key = f"{prefix}{name}"
        if name not in hints:
            if key != "hydra":
                yield key, [prefix + known for known in hints]
            continue
        if OmegaConf.is_missing(node, name) or OmegaConf.is_interpolation(node, name):
            continue
        child = node[name]
        if not isinstance(child, DictConfig):
            continue
        kind = OmegaConf.get_type(child) if hints[name] is Any else hints[name]
        if dataclasses.is_dataclass(kind):
            yield from _unknown(child, typing.cast(type, kind), f"{key}.")
