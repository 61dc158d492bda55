"""Scenario files: schema, units, loading with file:line errors. Start with `testbed.scenario.load.load`."""
