"""Which training method is fastest on this network, and why?

`testbed.load`, `testbed.up` and `testbed.open_run` are what notebooks and scripts need; see testbed.notebook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.notebook import load, open_run, up

__version__ = "0.1.0"
__all__ = ["__version__", "load", "open_run", "up"]
_LAZY = ("load", "open_run", "up")  # importing the package stays quick: the command line does it, too


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from testbed import notebook

    return getattr(notebook, name)
