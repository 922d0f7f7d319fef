"""Places where commands run, one module a kind; `base.py` is the contract they keep."""
