"""boosterrun: which ACFs of a Booster Pack make a GPU kernel faster, and can that be trusted?"""

from boosterrun.case import Case

__all__ = ["Case", "__version__"]
__version__ = "0.1.0"
