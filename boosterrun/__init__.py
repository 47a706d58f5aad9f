"""boosterrun: which ACFs of a Booster Pack make a GPU kernel faster, and can that be trusted?"""

__version__ = "0.1.0"
