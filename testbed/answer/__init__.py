"""The answer in words: which method was fastest, by how much, why, and the caveats.

Reads results only. Figures (`analysis`), the report and the commands import it.
"""
