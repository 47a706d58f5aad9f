"""Secrets never reach what is written or said: unit tests, and a sweep whose whole folder is searched."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path

import command
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boosterrun.system import redact

HIDDEN = redact.HIDDEN


@pytest.fixture(autouse=True)
def nothing_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "_learned", set())


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("https://me:pa:ss@word@host/x?y=z", f"https://{HIDDEN}@host/x?y=z"),
        ("git clone ssh://key@host/x failed", f"git clone ssh://{HIDDEN}@host/x failed"),
        ("workload.env.HF_TOKEN=abc", f"workload.env.HF_TOKEN={HIDDEN}"),
        ("{HF_TOKEN: abc, N: 3}", f"{{HF_TOKEN: {HIDDEN}, N: 3}}"),
        ("GET /x?access_token=a1b2&n=3", f"GET /x?access_token={HIDDEN}&n=3"),
        ("./bench --api-key s3cr3t --n 4", f"./bench --api-key {HIDDEN} --n 4"),
        ("Authorization: Bearer abcdef123456", f"Authorization: Bearer {HIDDEN}"),
        ("'GITHUB_TOKEN': 'ghp_123'", f"'GITHUB_TOKEN': '{HIDDEN}'"),
    ],
)
def test_what_stands_beside_a_telling_name_is_hidden(words: str, shown: str) -> None:
    assert redact.text(words) == shown
    assert redact.text(shown) == shown


@pytest.mark.parametrize(
    "words",
    [
        "num_tokens=4096 token=128 max_token=1.5",
        "error: unexpected token: foo; near token bar",
        "TOKENS: 4096",
        "workload.env.HF_TOKEN=${oc.env:HF_TOKEN}",
        "time: 1.5 ms; mail me@example.org; https://example.org/a?b=c",
        "key=value sort_key=int32 monkey=x",
    ],
)
def test_ordinary_words_stay(words: str) -> None:
    assert redact.text(words) == words


def test_values_are_learned_by_name_and_hidden_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_KEY", "from the shell: 1'2\"3")
    monkeypatch.setenv("AWS_PROFILE", "default")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/tmp/agent")
    config = {
        "workload": {
            "env": {"DB_PASS": "hunter22!", "KEYS": "8", "PLAIN": "x"},
            "command": ["./bench", "--token", "tok-1234", "--secret=shh-5678", "-n", "3"],
            "build": "make API_KEY=build-9999",
            "url": "https://me:url-7777@host/",
            "options": {"client_secret": "opt-0000", "token_layout": "packed", "num_token": 7},
        }
    }
    redact.learn(config)
    said = "hunter22! tok-1234 shh-5678 build-9999 url-7777 opt-0000 default /tmp/agent"
    assert redact.text(said) == f"{' '.join([HIDDEN] * 6)} default /tmp/agent"
    for form in ("from the shell: 1'2\"3", "from the shell: 1'2\\\"3", "from%20the%20shell%3A%201%272%223"):
        assert redact.text(f"<{form}>") == f"<{HIDDEN}>"
    clean = redact.tree(config)["workload"]
    assert clean["env"] == {"DB_PASS": HIDDEN, "KEYS": "8", "PLAIN": "x"}
    assert clean["command"] == ["./bench", "--token", HIDDEN, f"--secret={HIDDEN}", "-n", "3"]
    assert clean["options"] == {"client_secret": HIDDEN, "token_layout": "packed", "num_token": 7}
    assert redact.tree(redact.tree(config)) == redact.tree(config)


def test_a_command_line_is_learned_too() -> None:
    words = ["-m", "acf=none", "workload.env.X_AUTH=abc def;1", "++hydra.launcher.password='q w9erty'"]
    assert redact.argv(words)[2:] == [f"workload.env.X_AUTH={HIDDEN}", f"++hydra.launcher.password={HIDDEN}"]
    assert redact.text("said q w9erty and abc def;1") == f"said {HIDDEN} and {HIDDEN}"


def test_a_secret_that_is_no_text_is_hidden_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODD_TOKEN", "s3cret\udcff\udc80!")
    assert redact.text("say s3cret\udcff\udc80!") == f"say {HIDDEN}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["env", "X_TOKEN"]), inner),
    max_leaves=10,
)


@given(JSON, st.text(st.characters(exclude_categories=["Cs"]), min_size=6))
def test_a_learned_value_is_nowhere_in_a_tree(value: object, secret: str) -> None:
    redact._learned.clear()
    redact.learn({"password": secret})
    if redact._learned:
        clean = json.dumps(redact.tree([value, secret, f"a{secret}b", {"k": secret}]), ensure_ascii=False)
        assert json.dumps(secret, ensure_ascii=False)[1:-1] not in clean.replace(HIDDEN, "")
    redact.text(json.dumps(value))


def test_megabytes_of_hostile_words_take_no_time() -> None:
    began = time.monotonic()
    for unit in ("a.", "--token ", "token", "://", "://a@", "TOKEN: ", "bearer ", "a=", "--a-", "'token'="):
        redact.text(unit * (1_000_000 // len(unit)))
    assert time.monotonic() - began < 60


CASE = """
import os, sys
import numpy as np
from boosterrun import Case

def make(*, seed, fail=False, **options):
    x = np.full(4, float(seed))
    def run():
        print("user code says", os.environ["SIDE_TOKEN"], os.environ["SHELL_API_KEY"], flush=True)
        if fail:
            raise RuntimeError(f"no {os.environ['SHELL_API_KEY']} {os.environ['SIDE_TOKEN']} {options}")
        return x * 2
    # Always the same times, so that a busy machine decides nothing.
    times = lambda count: [1 + i / 1000 for i in range(count)]
    return Case(run=run, reference=lambda: x * 2, sample=times)
"""
SECRETS = {
    "shell": "sh-S3cret-1111",
    "override": "ov-S3cret-2222",
    "option": "op-S3cret-3333",
    "url": "ur-S3cret-4444",
    "short": "zq9",
}


def everything(folder: Path) -> dict[str, str]:
    """The name and content of every file below a folder, names of folders included."""
    return {
        str(path.relative_to(folder)): path.read_bytes().decode(errors="replace") if path.is_file() else ""
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("mode", ["undecided", "kept work", "one job"])
def test_no_secret_is_anywhere_in_a_sweeps_folder_or_output(tmp_path: Path, mode: str) -> None:
    (tmp_path / "case.py").write_text(CASE)
    pack = command.loose_pack(tmp_path / "pack", ["one", "two"])
    arguments = [
        "workload=python",
        f"workload.case={tmp_path}/case.py:make",
        f"+workload.options.fail={'false' if mode == 'kept work' else 'true'}",
        f"+workload.options.client_secret={SECRETS['option']}",
        f"+workload.options.mirror='https://me:{SECRETS['url']}@host/x'",
        f"+workload.env={{SIDE_TOKEN:{SECRETS['override']},DB_PASSWORD:{SECRETS['short']}}}",
        "protocol=quick",
        f"pack={pack}",
        f"hydra.sweep.dir={tmp_path}/out",
        f"keep_work={'true' if mode == 'kept work' else 'false'}",
    ]
    if mode == "one job":
        done = command.run("acf=one", *arguments, cwd=tmp_path, SHELL_API_KEY=SECRETS["shell"])
    else:
        done = command.run("-m", "acf=one,two", *arguments, cwd=tmp_path, SHELL_API_KEY=SECRETS["shell"])
    assert done.returncode == (0 if mode == "kept work" else 1), done.stderr
    files = everything(tmp_path / "out")
    assert any(name.endswith("result.json") for name in files)
    assert any(name.endswith(".hydra/overrides.yaml") for name in files)
    for kind, secret in SECRETS.items():
        assert secret not in done.stdout + done.stderr, kind
        assert not [name for name, content in files.items() if secret in name + content], kind
    logs = list((tmp_path / "out").rglob("stdout.log"))
    assert logs
    for path in logs:
        assert f"user code says {HIDDEN} {HIDDEN}" in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for path in (tmp_path / "out").glob("*/work"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_sweep_goes_on_only_with_its_secret_and_errors_name_none(tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text(CASE)
    secret = SECRETS["override"]
    common = ["workload=python", f"workload.case={tmp_path}/case.py:make", "protocol=quick"]
    line = ["acf=none", *common, f"+workload.env.SIDE_TOKEN={secret}", f"hydra.sweep.dir={tmp_path}/out"]
    first = command.run(*line, cwd=tmp_path, SHELL_API_KEY=SECRETS["shell"])
    assert first.returncode == 0, first.stderr
    again = command.run("resume", "out", cwd=tmp_path)
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert "secret" in again.stderr
    assert "hydra.sweep.dir=" in again.stderr
    repeated = command.run(*line, cwd=tmp_path, SHELL_API_KEY="another-S3cret-5")
    assert repeated.returncode == 0, repeated.stderr
    assert "done before" in repeated.stdout
    wrong = command.run(*line, "workload.nothing=1", f"workload.api_key={secret}", cwd=tmp_path)
    assert wrong.returncode == 2
    assert secret not in wrong.stderr + wrong.stdout


def test_what_the_shell_exports_needs_no_override(tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text(CASE)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "mine.yaml").write_text(
        "# @package _global_\ndefaults: [{override /workload: python}, {override /protocol: quick}]\n"
        f"workload: {{case: '{tmp_path}/case.py:make', env: {{SIDE_TOKEN: '${{oc.env:SHELL_API_KEY}}'}}}}\n"
    )
    line = ["experiment=mine", "acf=none", f"hydra.sweep.dir={tmp_path}/out"]
    done = command.run(*line, cwd=tmp_path, SHELL_API_KEY=SECRETS["shell"])
    assert done.returncode == 0, done.stderr
    again = command.run("resume", "out", cwd=tmp_path, SHELL_API_KEY=SECRETS["shell"])
    assert again.returncode == 0, again.stderr
    files = everything(tmp_path / "out")
    assert not [name for name, content in files.items() if SECRETS["shell"] in content]
    assert "${oc.env:SHELL_API_KEY}" in files["none/.hydra/config.yaml"]
