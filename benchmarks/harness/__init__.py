"""What every side-by-side measurement of this folder shares.

``interleaving`` runs systems in turn and keeps the seconds of every round, ``results`` is the
layout of ``results.json``, ``machine`` says where it was measured, ``catalogue`` lists the
measurements and turns what each script prints into that layout.
"""
