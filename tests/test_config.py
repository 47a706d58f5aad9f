"""The defaults are written in three places, for three readers: they must agree."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from boosterrun.config import SHIPPED, Config, ProtocolConfig, register, typed
from boosterrun.decision.pairs import Protocol
from boosterrun.errors import UsageError

CONF = Path(__file__).parents[1] / "conf"


def test_the_protocol_that_decides_has_the_defaults_of_the_config() -> None:
    assert Protocol.from_mapping(asdict(ProtocolConfig(name="x"))) == Protocol()


def test_the_screen_file_states_each_default() -> None:
    stated = OmegaConf.to_container(OmegaConf.load(CONF / "protocol" / "screen.yaml"))
    assert isinstance(stated, dict)
    assert {**asdict(ProtocolConfig(name="screen")), **stated} == stated
    assert set(stated) == {field.name for field in fields(ProtocolConfig)}


def test_the_shipped_resolver_names_files_of_the_package() -> None:
    register()
    register()
    config = OmegaConf.create({"pack": "${shipped:packs/booster-pack-sample.zip}"})
    assert Path(config.pack) == SHIPPED / "packs" / "booster-pack-sample.zip"
    assert Path(config.pack).is_file()


def test_a_workload_without_a_schema_is_refused() -> None:
    config = OmegaConf.structured(Config)
    config.workload = {"name": "mine"}
    config.acf.id = "none"
    config.pack.name, config.pack.path = "sample", "."
    config.protocol.name = "screen"
    with pytest.raises(UsageError, match="the workload has no schema"):
        typed(config)
