"""The command line: one module per command, named like it, with its click command as `command`.

Nothing imports these but `testbed.cli` (by name, when called) and `testbed.notebook`. Shared options: `options.py`.
"""
