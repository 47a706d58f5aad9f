"""How the command sits on Hydra: where configs come from, what a command line means, errors in one line."""
