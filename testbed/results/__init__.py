"""The run directory is the database: its content, typed and validated, and the comparison made from it.

`directory` reads and writes it, `cell` is one cell's result, `run` opens it as tables. Knows nothing of what runs.
"""
