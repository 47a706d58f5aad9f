"""The NVML snapshot against a small NVML written in C, and without any."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from boosterrun.gpus import gpu

# A driver with one device. The file named by FAKE_NVML says, one "name value" a line, what differs from an
# idle card; "fail:CALL 1" makes a call unsupported.
FAKE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef unsigned int u32; typedef unsigned long long u64;
enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };

static u64 setting(const char *name, u64 otherwise) {
    FILE *f = fopen(getenv("FAKE_NVML"), "r");
    char key[64]; u64 value;
    while (f && fscanf(f, "%63s %llu", key, &value) == 2)
        if (!strcmp(key, name)) { fclose(f); return value; }
    if (f) fclose(f);
    return otherwise;
}
#define CALL(name) if (setting("fail:" #name, setting("fail:all", 0))) return NOT_SUPPORTED

int nvmlInitWithFlags(u32 flags) { return setting("init", 0); }
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "Not Supported"; }
int nvmlSystemGetDriverVersion(char *s, u32 n) { CALL(Driver); snprintf(s, n, "580.159.04"); return OK; }
int nvmlSystemGetCudaDriverVersion(int *v) { CALL(Cuda); *v = 13000; return OK; }
int nvmlDeviceGetCount_v2(u32 *n) { CALL(Count); *n = 1; return OK; }
int nvmlDeviceGetHandleByIndex_v2(u32 i, void **h) { *h = (void *)1; return i ? NOT_FOUND : OK; }
int nvmlDeviceGetHandleByUUID(const char *u, void **h) {
    *h = (void *)1; return strcmp(u, "GPU-ab12") ? NOT_FOUND : OK;
}
int nvmlDeviceGetIndex(void *h, u32 *i) { CALL(Index); *i = 0; return OK; }
int nvmlDeviceGetName(void *h, char *s, u32 n) { CALL(Name); snprintf(s, n, "NVIDIA H200"); return OK; }
int nvmlDeviceGetUUID(void *h, char *s, u32 n) { CALL(UUID); snprintf(s, n, "GPU-ab12"); return OK; }
int nvmlDeviceGetCudaComputeCapability(void *h, int *a, int *b) {
    CALL(Capability); *a = 9; *b = 0; return OK;
}
int nvmlDeviceGetClockInfo(void *h, u32 type, u32 *v) { CALL(Clock); *v = type == 1 ? 345 : 3201; return OK; }
int nvmlDeviceGetMaxClockInfo(void *h, u32 type, u32 *v) {
    CALL(MaxClock); *v = type == 1 ? 1980 : 3201; return OK;
}
int nvmlDeviceGetPowerUsage(void *h, u32 *v) { CALL(Power); *v = 80867; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(void *h, u32 *v) { CALL(Limit); *v = 700000; return OK; }
int nvmlDeviceGetTemperature(void *h, u32 sensor, u32 *v) { CALL(Temperature); *v = 30; return OK; }
int nvmlDeviceGetPerformanceState(void *h, u32 *v) { CALL(PState); *v = 0; return OK; }
int nvmlDeviceGetPersistenceMode(void *h, u32 *v) { CALL(Persistence); *v = 1; return OK; }
int nvmlDeviceGetMigMode(void *h, u32 *a, u32 *b) { CALL(Mig); *a = *b = 0; return OK; }
int nvmlDeviceGetEccMode(void *h, u32 *a, u32 *b) { CALL(Ecc); *a = *b = 1; return OK; }
int nvmlDeviceGetTotalEccErrors(void *h, u32 t, u32 c, u64 *v) { CALL(Ecc); *v = t; return OK; }
struct memory { u64 total, free, used; };
int nvmlDeviceGetMemoryInfo(void *h, struct memory *m) {
    CALL(Memory); m->total = 150754820096ull; m->used = 7; return OK;
}
int nvmlDeviceGetCurrentClocksEventReasons(void *h, u64 *v) {
    CALL(Reasons); *v = setting("reasons", 1); return OK;
}
struct violation { u64 reference, time; };
int nvmlDeviceGetViolationStatus(void *h, u32 policy, struct violation *v) {
    CALL(Violation);
    if (policy > 5) return NOT_SUPPORTED;
    v->time = policy == 1 ? setting("violation", 11) : policy;
    return OK;
}
struct field { u32 id, scope; long long stamp, latency; u32 type, code; u64 value; };
int nvmlDeviceGetFieldValues(void *h, int n, struct field *f) {
    CALL(Fields);
    for (int i = 0; i < n; i++) {
        char name[32]; snprintf(name, 32, "field:%u", f[i].id);
        f[i].code = f[i].id >= 269 && setting("old", 0) ? NOT_SUPPORTED : OK;
        f[i].value = setting(name, 0);
    }
    return OK;
}
struct proc { u32 pid; u64 used; u32 gi, ci; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, u32 *n, struct proc *p) {
    CALL(Processes);
    u32 pids[2], have = 0;
    if (setting("pid", 0)) pids[have++] = setting("pid", 0);
    if (setting("pid2", 0)) pids[have++] = setting("pid2", 0);
    if (*n < have) { *n = have; return TOO_SMALL; }
    for (u32 i = 0; i < have; i++) { p[i].pid = pids[i]; p[i].used = 1 << 20; }
    *n = have;
    return OK;
}
"""

SCRIPT = """
import json, sys, pathlib, time
from boosterrun.gpus import gpu
from boosterrun.measure.watch import Stages
settings = pathlib.Path(sys.argv[1])
out = []
stages = Stages()
for number, text in enumerate(json.loads(sys.argv[2])):
    settings.write_text(text)
    out.append({"full": gpu.snapshot(), "light": gpu.light("ab12"), "other": gpu.snapshot(["GPU-9", 0])})
    stages.passed("pairs", number, {"uuid": "ab12"})
    stages.passed("check", number, None)
    stages.passed("wait", number, {"uuid": "ab12"})  # over at once
    time.sleep(0.03)
    out[-1]["stages"] = list(stages.readings)
print(json.dumps(out, allow_nan=False))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: the fake NVML cannot be built")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(FAKE)
    target = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-w", "-shared", "-fPIC", "-o", target, folder / "nvml.c"], check=True)
    return folder


def ask(library: Path, tmp_path: Path, *settings: str) -> list[dict[str, Any]]:
    """Take snapshots in a process of its own, under each of the settings in turn."""
    path = tmp_path / "settings"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, path, json.dumps(settings)],
        env={**os.environ, "LD_LIBRARY_PATH": str(library), "FAKE_NVML": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_an_idle_device_is_described_in_full(library: Path, tmp_path: Path) -> None:
    (found,) = ask(library, tmp_path, "pid 4711")
    full = found["full"]
    assert (full["driver_version"], full["cuda_driver_version"], full["error"]) == (
        "580.159.04",
        "13.0",
        None,
    )
    (device,) = full["devices"]
    assert device["pci_bus_id"] is None  # the one call that the fake does not have
    del device["pci_bus_id"]
    assert device == {
        "index": 0,
        "uuid": "GPU-ab12",
        "name": "NVIDIA H200",
        "compute_capability": "9.0",
        "clocks_mhz": {"sm": 345, "memory": 3201, "sm_max": 1980, "memory_max": 3201},
        "power_w": {"draw": 80.867, "limit": 700.0},
        "temperature_c": 30,
        "pstate": 0,
        "persistence_mode": True,
        "mig_mode": False,
        "memory_bytes": {"used": 7, "total": 150754820096},
        "clocks_event_reasons": ["gpu_idle"],
        "counters_ns": dict.fromkeys(gpu._COUNTER_FIELDS.values(), 0),
        "compute_processes": [{"pid": 4711, "used_memory_bytes": 1 << 20}],
        "ecc": {"enabled": True, "corrected": 0, "uncorrected": 1},
    }
    assert found["other"]["error"] == "NVML cannot open device GPU-9"
    assert [device["index"] for device in found["other"]["devices"]] == [0]


def test_each_stage_has_the_vitals_before_and_after_it(library: Path, tmp_path: Path) -> None:
    found = ask(library, tmp_path, "", "reasons 4\nfail:Power 1")
    first, at_once, second, _ = found[-1]["stages"]
    assert first == {"stage": "pairs", "session": 0, "before": None, "after": first["after"]}
    assert first["after"] == {
        "sm_mhz": 345,
        "memory_mhz": 3201,
        "power_w": 80.867,
        "power_limit_w": 700.0,
        "temperature_c": 30,
        "reasons": ["gpu_idle"],
        "counters_ns": first["after"]["counters_ns"],
    }
    assert at_once == {"stage": "wait", "session": 0, "before": first["after"], "after": first["after"]}
    assert (second["session"], second["before"]) == (1, first["after"])
    assert second["after"]["reasons"] == ["sw_power_cap"]


def test_a_driver_that_tells_nothing_gives_nulls(library: Path, tmp_path: Path) -> None:
    (found,) = ask(library, tmp_path, "fail:all 1\nfail:Count 0")
    (device,) = found["full"]["devices"]

    def leaves(value: Any) -> list[Any]:
        if isinstance(value, dict):
            return [leaf for item in value.values() for leaf in leaves(item)]
        return [value]

    assert set(leaves(device)) == {None}
    assert device["counters_ns"] == {}
    assert found["light"] == {"reasons": None, "counters_ns": {}, "pids": None}


def test_an_older_driver_is_asked_for_violation_times(library: Path, tmp_path: Path) -> None:
    before, after = ask(library, tmp_path, "old 1", "old 1\nviolation 5000000011")
    assert before["light"]["counters_ns"]["thermal"] == 11
    assert gpu.disturbance(before["light"], after["light"], []) == "thermal for 5.000000 s"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("pid 7", None),
        ("pid 7\nreasons 4\nfield:74 9000000000", None),
        ("pid 7\nfield:269 1000000", "sw_thermal_slowdown for 0.001000 s"),
        ("pid 7\nfield:270 1000000", "hw_thermal_slowdown for 0.001000 s"),
        ("pid 7\nfield:271 2000", "hw_power_brake_slowdown for 0.000002 s"),
        ("pid 7\nreasons 8", "hw_slowdown is active"),
        ("pid 7\nreasons 32", "sw_thermal_slowdown is active"),
        ("pid 7\npid2 9", "another process uses the GPU: pid 9"),
        ("pid 7\npid2 8", None),
        ("pid2 9", "another process uses the GPU: pid 9"),
        ("", None),
    ],
)
def test_disturbances_between_two_light_snapshots(
    library: Path, tmp_path: Path, settings: str, expected: str | None
) -> None:
    before, after = (found["light"] for found in ask(library, tmp_path, "pid 7", settings))
    assert gpu.disturbance(before, after, own_pids=[8]) == expected
    assert gpu.disturbance(before, after, [8], ignore=(*gpu.DISTURBING, "process")) is None
    assert gpu.disturbance(before, before, own_pids=[]) is None


def test_throttled_seconds_include_the_power_cap(library: Path, tmp_path: Path) -> None:
    before, after = (x["light"] for x in ask(library, tmp_path, "field:74 1000", "field:74 2500001000"))
    assert gpu.throttled(before, after) == {"sw_power_cap": 2.5}


def test_a_driver_that_does_not_start_is_told(library: Path, tmp_path: Path) -> None:
    (found,) = ask(library, tmp_path, "init 9")
    assert found["full"]["devices"] == []
    assert "Driver Not Loaded" in found["full"]["error"]
    assert found["light"] is None


def test_without_a_driver_there_is_an_explanation_and_no_error(tmp_path: Path) -> None:
    # An unusable library hides a real driver of the machine that runs the tests.
    (tmp_path / "libnvidia-ml.so.1").write_text("")
    (found,) = ask(tmp_path, tmp_path, "")
    assert found["full"]["devices"] == []
    assert found["full"]["error"]
    assert found["light"] is None


def test_missing_snapshots_disturb_nothing() -> None:
    light: gpu.Light = {"reasons": 8, "counters_ns": {}, "pids": [1]}
    assert gpu.disturbance(None, light, []) is None
    assert gpu.disturbance(light, None, []) is None
    assert gpu.throttled(None, light) == {}


def test_reason_bits_have_names() -> None:
    assert gpu.reason_names(None) is None
    assert gpu.reason_names(0) == []
    assert gpu.reason_names(0x4 | 0x40 | 0x400) == ["sw_power_cap", "hw_thermal_slowdown", "0x400"]
