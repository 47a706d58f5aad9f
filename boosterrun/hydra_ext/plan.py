"""What a command line asks for, checked before anything runs: its pack, its ACFs, each distinct config."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from boosterrun import launchers
from boosterrun.errors import UsageError
from boosterrun.hydra_ext import keys, search, sources
from boosterrun.hydra_ext.arguments import Arguments, literal, quoted
from boosterrun.hydra_ext.explain import explaining
from boosterrun.packs import Pack, find, option_id
from boosterrun.sweeps.sweep import expand

ACF = re.compile(r"\+{0,2}acf=", re.DOTALL)


@dataclass(frozen=True)
class Plan:
    """A command that can run.

    Attributes:
        pack: the one pack of all jobs. search_path: Hydra's, with the pack's ACFs in it.
        overrides: the command line with the pack's path made absolute. multirun: many jobs or one.
        configs: a job's config (without ``hydra``) for each distinct rest of the overrides, checked.
        folder: where the results of this run would go, not made yet.
        here: jobs run in this process. elsewhere: they run on other machines than this one.
    """

    pack: Pack
    search_path: ConfigSearchPath
    config_name: str
    overrides: list[str]
    multirun: bool
    configs: list[DictConfig]
    folder: Path
    here: bool
    elsewhere: bool


def make(arguments: Arguments, *, may_fetch: bool = True) -> Plan:
    """Compose what the command line asks for, learn its pack, and check all that is the same for many jobs.

    Raises UsageError (or PackError) in one line for anything that could not run.
    """
    flags = arguments.flags
    name = flags.config_name or "config"
    acf = [o for o in arguments.overrides if ACF.match(o)]
    rest = [o for o in arguments.overrides if not ACF.match(o)]
    blind = search.loader(search.search_path(None, flags.config_path, flags.config_dir))
    with explaining():
        parsed = OverridesParser.create().parse_overrides(rest)
        single = [o for o, p in zip(rest, parsed, strict=True) if not p.is_sweep_override()]
        first = _compose(blind, name, [*single, *_any(acf)])
        launchers.require(first.hydra.launcher)
        multirun = flags.multirun or str(first.hydra.mode) == str(RunMode.MULTIRUN)
        params = (first.hydra.sweeper.get("params") or {}) if multirun else {}
        by_key = [f"{key}={value}" for key, value in params.items()]
        acf = [o for o in by_key if ACF.match(o)] + acf
        rest = [o for o in by_key if not ACF.match(o)] + rest
        rests = _rests(rest, blind) if multirun else [rest]
        if rests == [single] and (not by_key or _any(acf) == []):
            composed = [first]
        else:
            composed = [_compose(blind, name, [*other, *_any(acf)]) for other in rests]
    for config in composed:
        keys.check(_without_hydra(config), arguments.overrides)
    pack, place = _pack(composed, may_fetch)
    path = search.search_path(pack.location, flags.config_path, flags.config_dir)
    loader = search.loader(path)
    for config in composed:
        config.pack.path = literal(str(pack.location))
        config.acf.id = _first_acf(acf, config, pack, loader, multirun)
        _resolvable(config)
    overrides = list(arguments.overrides)
    if place != str(pack.location):
        overrides.append(f"pack.path={quoted(str(pack.location))}")
    configs = [_without_hydra(config) for config in composed]
    results = Path(str(first.hydra.sweep.dir))
    where = launchers.here(first.hydra.launcher), launchers.elsewhere(first.hydra.launcher)
    return Plan(pack, path, name, overrides, multirun, configs, results, *where)


def _compose(loader: ConfigLoaderImpl, name: str, overrides: Sequence[str]) -> DictConfig:
    return loader.load_configuration(config_name=name, overrides=list(overrides), run_mode=RunMode.RUN)


def _any(acf: Sequence[str]) -> list[str]:
    """Stand in for whatever the command line says about the ACF: here any will do."""
    return ["acf=none"] if acf else []


def _rests(rest: Sequence[str], loader: ConfigLoaderImpl) -> list[list[str]]:
    """The jobs but for their ACFs; values of plain keys are checked once each, not in all combinations."""
    jobs = expand(rest, loader)
    choosing = [key for key in (jobs[0] if jobs else ()) if "." not in key or key.startswith("pack")]
    seen: dict[tuple[str, ...], dict[str, str]] = {}
    for job in jobs:
        seen.setdefault(tuple(job[key] for key in choosing), job)
        for key, value in job.items():
            seen.setdefault((key, value), job)
    distinct = {tuple(job.items()): job for job in seen.values()}
    return [[f"{key}={value}" if value else key for key, value in job.items()] for job in distinct.values()]


def _pack(composed: Sequence[DictConfig], may_fetch: bool) -> tuple[Pack, str]:
    """The one pack of all jobs, opened, and its path as configured."""
    found: dict[Path, dict[str, Any]] = {}
    for config in composed:
        with explaining():
            pack: Any = OmegaConf.to_container(
                config.pack, resolve=True, throw_on_missing=True, enum_to_str=True
            )
        if not isinstance(pack, dict):
            raise UsageError("no pack is selected", "Give pack=NAME or pack=./FOLDER")
        ptxas = OmegaConf.select(config, "toolchain.ptxas")
        path = find.locate(pack, ptxas, os.environ, may_fetch=may_fetch)
        found[path] = {str(key): value for key, value in pack.items()}
    if len(found) > 1:
        raise UsageError(
            f"one sweep, {len(found)} packs: {', '.join(map(str, found))}", "Sweep one pack at a time"
        )
    path, pack = next(iter(found.items()))
    opened = sources.describe(path, cuda_version=pack["cuda_version"], stage=pack["stage"], name=pack["name"])
    return opened, str(pack["path"])


def _first_acf(
    acf: Sequence[str], config: DictConfig, pack: Pack, loader: ConfigLoaderImpl, multirun: bool
) -> str:
    """Check every ACF that is asked for. Returns the first that is not ``none``, if there is one."""
    source = sources.PackSource("pack", f"pack://{pack.location}")
    if acf:
        try:
            with explaining():
                parsed = OverridesParser.create(config_loader=loader).parse_overrides([acf[-1]])[0]
                names = [job[parsed.get_key_element()] for job in expand([acf[-1]], loader)]
                if not parsed.is_sweep_override():
                    names = [parsed.get_value_string()]
        except UsageError as error:
            raise _by_odd_name(acf[-1], pack) or error from error.__cause__
        if parsed.is_sweep_override() and not multirun:
            raise UsageError(f"'{acf[-1]}' is a sweep over {len(names)} ACFs", "Add -m to run it")
    else:
        names = [str(OmegaConf.select(config, "acf.id"))]
    for name in names:
        if name != sources.NONE and source.find(name) is None:
            raise _by_odd_name(f"acf={name}", pack) or _unknown_acf(name, pack)
    return next((name for name in names if name != sources.NONE), sources.NONE)


def _by_odd_name(override: str, pack: Pack) -> UsageError | None:
    """A file's name that Hydra cannot read as a value: say which id stands for it."""
    name = override.partition("=")[2].strip("'\"")
    for acf in pack.acfs:
        if name in {acf.filename, acf.filename.removesuffix(".acf")} and name != acf.id:
            return UsageError(f"'{name}' cannot be written as an ACF's name", f"Its id is: acf={acf.id}")
    return None


def _unknown_acf(name: str, pack: Pack) -> UsageError:
    if name.startswith("{include:"):
        advice = "Leave none out: the baseline is measured in every job"
        return UsageError("glob() cannot stand in a list of ACFs", advice)
    if name in {"", "null", "???"}:
        return UsageError(
            "no ACF is selected", "Give acf=NAME, or acf=none to compare the baseline with itself"
        )
    ids = sorted(acf.id for acf in pack.acfs)
    advice = keys.did_you_mean(option_id(name), ids)
    return UsageError(f"unknown ACF '{name}': none of the {len(ids)} ACFs of {pack.location}", advice)


def _without_hydra(config: DictConfig) -> DictConfig:
    plain = config.copy()
    with open_dict(plain):
        plain.pop("hydra", None)
    return plain


def _resolvable(config: DictConfig) -> None:
    """Refuse missing values and interpolations to nowhere before the first job instead of in each one."""
    runtime: Mapping[str, Any] = {"output_dir": "outputs"}
    with open_dict(config.hydra):
        config.hydra.runtime.update(runtime)
        config.hydra.job.update(id="0", num=0)
    previous = HydraConfig.instance().cfg
    HydraConfig.instance().set_config(config)
    try:
        with explaining():
            OmegaConf.to_container(_without_hydra(config), resolve=True, throw_on_missing=True)
    finally:
        HydraConfig.instance().cfg = previous
