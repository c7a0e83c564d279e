"""A slow, plain model of the sans-I/O core, written from the rules and not from its code.

Everything here works on whole `bytes` objects, keeps no offsets from one call to the next and
knows nothing of slabs or spans. Tests compare the compiled core against it.
"""
