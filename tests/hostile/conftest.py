"""Both runtimes end hostile cells by the same policy: of the slower one, `make test` runs a part, `make stress` all.
Whoever takes all memory, processes and processors does so alone."""

from __future__ import annotations

import pytest

LEFT_TO_STRESS = ("words", "results", "greed")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        given = getattr(getattr(item, "callspec", None), "params", {})
        if "hostile" in item.path.parts and given.get("part") != "greed":
            item.add_marker(pytest.mark.beside)
        if given.get("runtime") == "docker" and given.get("part") in LEFT_TO_STRESS:
            item.add_marker(pytest.mark.thorough)
