"""One target under atheris: ``python fuzz_atheris.py TARGET CORPUS -max_total_time=60``."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["boosterrun"]):
    import fuzz_targets


def main() -> None:
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, lambda data: fuzz_targets.run(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
