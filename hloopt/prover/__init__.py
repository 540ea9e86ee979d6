"""Which change makes a result wrong: modules on the same inputs, compared element by element.

``trials`` are the inputs, ``executor`` runs a module on them, ``comparing`` judges two runs.  The searches
stand on these: which value differs first, which stage, pass, rewrite or kernel made it differ, and which
smallest module still shows it.
"""
