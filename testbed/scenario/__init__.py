"""Scenario files: YAML to validated models, units, errors with file and line. Start with `load.load`.

Imports only links of the project. Topologies, plans and commands import it.
"""
