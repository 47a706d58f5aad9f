"""What the command does besides running jobs: one module per verb, imported when it is used."""
