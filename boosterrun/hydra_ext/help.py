"""The text of ``boosterrun --help``: the verbs, and what there is to choose from."""

from __future__ import annotations

from collections.abc import Mapping

from hydra.core.config_loader import ConfigLoader

GROUPS = ("pack", "acf", "workload", "gpu", "protocol", "experiment")
MAX_OPTIONS = 12

HEAD = """\
boosterrun: which ACFs of a Booster Pack make a GPU kernel faster, and can that be trusted?

  boosterrun -m 'acf=glob(*)'                      one job per ACF of the sample pack (quote the glob)
  boosterrun -m 'acf=glob([01*,02*])' pack=./dir   some ACFs of a pack in a folder or a zip
  boosterrun -m experiment=NAME                    all that experiments/NAME.yaml declares
  boosterrun acf=NAME                              one ACF
  boosterrun                                       self-test: the baseline against itself
"""

FLAGS = """\
  -m, --multirun          one job per combination of swept values
  -q, --quiet             no line per job, only what came out
  -v, --verbose           with each job, where its time went
  -c, --cfg job           print the configuration instead of running it (--resolve: with values filled in)
  -i, --info              where the configuration comes from
  -cd, --config-dir DIR   one more folder of config files
  -sc install=bash        shell completion: eval "$(boosterrun -sc install=bash)"
  --hydra-help            flags of Hydra, on which this command is built
  --version               version
"""


def text(loader: ConfigLoader, verbs: Mapping[str, str]) -> str:
    """The help text, with the options that ``loader`` finds, and what each of the ``verbs`` does."""
    parts = [HEAD, "\nVerbs:\n"]
    parts += [f"  {name:<22}  {summary}\n" for name, summary in verbs.items()]
    parts += ["\nFlags, before or after the overrides:\n", FLAGS, "\nGroups (GROUP=OPTION):\n"]
    for group in GROUPS:
        options = loader.get_group_options(group)
        shown = ", ".join(options[:MAX_OPTIONS]) + (
            f", ... ({len(options)} in all)" if len(options) > MAX_OPTIONS else ""
        )
        parts.append(f"  {group:<10}  {shown}\n")
    parts.append("\nAny key of `boosterrun --cfg job` is set by KEY=VALUE: protocol.min_gain=0.02\n")
    return "".join(parts)
