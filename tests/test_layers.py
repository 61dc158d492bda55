"""Who may import whom: packages form layers, and a package imports only what lies below it, lazy imports included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "testbed"

# Low to high. A line is a layer: its packages may import those of the lines above, and themselves, but not each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "seeds", "flat", "columns"),
    ("interrupts", "safe_files", "registry"),
    ("output",),
    ("console",),
    ("link", "compressors"),
    ("verdict",),
    ("scenario",),
    ("topology",),
    ("tasks", "methods"),
    ("plan",),
    ("network",),
    ("worker",),
    ("runtime",),
    ("results",),
    ("run",),
    ("answer",),
    ("analysis",),
    ("report",),
    ("bench",),
    ("commands",),
    ("notebook", "cli"),
)
LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}


def _modules() -> list[Path]:
    own = [path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"]
    return sorted([*own, *(ROOT / "analysis").glob("*.py")])  # a link in a checkout, which rglob does not follow


def _package(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and package of each import of this project, wherever in the file it stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "testbed":
            names = [f"testbed.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        for name in names:
            first, _, rest = name.partition(".")
            if first == "testbed" and rest and not rest.startswith("__"):
                yield node.lineno, rest.split(".")[0]


def test_every_package_has_a_layer() -> None:
    assert {_package(path) for path in _modules()} == set(LEVEL)


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down(path: Path) -> None:
    own = _package(path)
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {own} must not import {package}"
        for line, package in _imports(path)
        if package != own and LEVEL[package] >= LEVEL[own]
    ]
    assert not wrong, "\n".join(wrong)
