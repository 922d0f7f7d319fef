"""Hostile text in, safe HTML out. Pure, and the only place that marks text as safe.

Whatever a model or a program printed is shown as text: colours are kept, everything else that could act
(markup, escape sequences, marks that turn the direction of reading) is shown as a visible sign. Time is
linear in the input and the number of nodes bounded.
"""
