"""A machine with GPUs that a text file describes: the driver's two libraries, written in C.

``gpu UUID MODEL MAJOR`` a line for each card (spaces of the model as ``_``), ``dead UUID`` for one that does
not answer NVML, ``instance CARD-UUID UUID MODEL`` for MIG, ``process UUID PID BUSY`` for a compute process
(BUSY in percent; -1: the driver does not tell), ``cuda UUID CODE`` for one on which CUDA fails (-1: hangs).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

NVML = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef unsigned int u32; typedef unsigned long long u64;
enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };
struct card { char uuid[80], model[80]; int major, dead, parent, pids[8], busy[8], processes; };
static struct card cards[32];
static int count;

static int find(const char *uuid) {
    for (int i = 0; i < count; i++) if (!strcmp(cards[i].uuid, uuid)) return i;
    return -1;
}
static void load(void) {
    char line[256], a[80], b[80], c[80]; int x, y;
    count = 0;
    memset(cards, 0, sizeof cards);
    FILE *f = fopen(getenv("FAKE_DRIVER"), "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "gpu %79s %79s %d", a, b, &x) == 3) {
            struct card *new = &cards[count++];
            strcpy(new->uuid, a); new->major = x; new->parent = -1; strcpy(new->model, b);
        } else if (sscanf(line, "instance %79s %79s %79s", a, b, c) == 3) {
            struct card *new = &cards[count];
            strcpy(new->uuid, b); new->parent = find(a); new->major = 9; strcpy(new->model, c); count++;
        } else if (sscanf(line, "process %79s %d %d", a, &x, &y) == 3 && find(a) >= 0) {
            struct card *card = &cards[find(a)];
            card->pids[card->processes] = x; card->busy[card->processes++] = y;
        } else if (sscanf(line, "dead %79s", a) == 1 && find(a) >= 0) cards[find(a)].dead = 1;
    }
    if (f) fclose(f);
    for (int i = 0; i < count; i++)
        for (char *s = cards[i].model; *s; s++) if (*s == '_') *s = ' ';
}
static struct card *card(void *h) { load(); return &cards[(long)h - 1]; }
static int physical(int i) { return cards[i].parent < 0; }
static int split(int i) {
    for (int j = 0; j < count; j++) if (cards[j].parent == i) return 1;
    return 0;
}
#define CARD(h) struct card *c = card(h); if (c->dead) return LOST

int nvmlInitWithFlags(u32 flags) { load(); return count ? OK : 9; }
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "Not Supported"; }
int nvmlSystemGetDriverVersion(char *s, u32 n) { snprintf(s, n, "580.159.04"); return OK; }
int nvmlDeviceGetCount_v2(u32 *n) {
    load(); *n = 0;
    for (int i = 0; i < count; i++) *n += physical(i);
    return OK;
}
int nvmlDeviceGetHandleByIndex_v2(u32 wanted, void **h) {
    load();
    for (int i = 0; i < count; i++)
        if (physical(i) && !wanted--) { *h = (void *)(long)(i + 1); return cards[i].dead ? LOST : OK; }
    return NOT_FOUND;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **h) {
    load(); int i = find(uuid);
    if (i < 0) return NOT_FOUND;
    *h = (void *)(long)(i + 1); return cards[i].dead ? LOST : OK;
}
int nvmlDeviceGetIndex(void *h, u32 *i) {
    CARD(h); *i = 0;
    if (c->parent >= 0) return NOT_SUPPORTED;
    for (int j = 0; &cards[j] != c; j++) *i += physical(j);
    return OK;
}
int nvmlDeviceGetName(void *h, char *s, u32 n) { CARD(h); snprintf(s, n, "%s", c->model); return OK; }
int nvmlDeviceGetUUID(void *h, char *s, u32 n) { CARD(h); snprintf(s, n, "%s", c->uuid); return OK; }
int nvmlDeviceGetCudaComputeCapability(void *h, int *a, int *b) { CARD(h); *a = c->major; *b = 0; return OK; }
int nvmlDeviceGetMigMode(void *h, u32 *now, u32 *later) {
    CARD(h); *now = *later = split(c - cards); return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(void *h, u32 *n) { CARD(h); *n = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *h, u32 wanted, void **found) {
    CARD(h);
    for (int j = 0; j < count; j++)
        if (cards[j].parent == c - cards && !wanted--) { *found = (void *)(long)(j + 1); return OK; }
    return NOT_FOUND;
}
struct process { u32 pid; u64 used; u32 gi, ci; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, u32 *n, struct process *p) {
    CARD(h);
    u32 room = *n; *n = c->processes;
    if (room < *n) return TOO_SMALL;
    for (u32 i = 0; i < *n; i++) { p[i].pid = c->pids[i]; p[i].used = 1 << 20; }
    return OK;
}
struct sample { u32 pid; u64 stamp; u32 sm, mem, enc, dec; };
int nvmlDeviceGetProcessUtilization(void *h, struct sample *s, u32 *n, u64 since) {
    CARD(h);
    if (!c->processes) return NOT_FOUND;
    if (!s) { *n = c->processes; return TOO_SMALL; }
    for (int i = 0; i < c->processes; i++) {
        if (c->busy[i] < 0) return NOT_SUPPORTED;
        memset(&s[i], 0, sizeof *s); s[i].pid = c->pids[i]; s[i].sm = c->busy[i];
    }
    *n = c->processes;
    return OK;
}
"""

CUDA = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int answer(void) {
    char line[256], uuid[80]; int code, found = 0;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    FILE *f = fopen(getenv("FAKE_DRIVER"), "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "cuda %79s %d", uuid, &code) == 2 && visible && !strcmp(uuid, visible)) found = code;
    if (f) fclose(f);
    while (found == -1) sleep(1);
    return found;
}
int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuMemAlloc_v2(void **p, size_t size) { *p = malloc(size); return 0; }
int cuMemsetD32_v2(unsigned *p, unsigned value, size_t n) { while (n) p[--n] = value; return 0; }
int cuCtxSynchronize(void) { return answer(); }
int cuMemcpyDtoH_v2(void *to, void *from, size_t size) { memcpy(to, from, size); return 0; }
"""


def build(folder: Path) -> Path:
    """Compile both libraries into a folder; skips the test where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: the libraries of the driver cannot be built")
    for name, source in (("libnvidia-ml.so.1", NVML), ("libcuda.so.1", CUDA)):
        (folder / f"{name}.c").write_text(source)
        subprocess.run(
            [compiler, "-w", "-shared", "-fPIC", "-o", folder / name, folder / f"{name}.c"], check=True
        )
    return folder


def variables(library: Path, machine: Path, locks: Path) -> dict[str, str]:
    """What a process needs to be on the machine that the file ``machine`` describes."""
    path = os.environ.get("LD_LIBRARY_PATH")
    return {
        "LD_LIBRARY_PATH": f"{library}:{path}" if path else str(library),
        "FAKE_DRIVER": str(machine),
        "BOOSTERRUN_LOCKS": str(locks),
    }
