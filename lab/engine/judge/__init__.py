"""Reading a run by a model: what it is asked, in which pieces, and what of its answers can be used."""
