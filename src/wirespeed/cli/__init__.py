"""The command line. No library code imports it.

`app` is the grammar (click). The other modules do the work; a command loads its module at its run.
"""
