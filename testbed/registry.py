"""Finds things by the name a scenario uses and makes them from its options. Methods have one; others may.

A kind of thing is an abstract dataclass whose fields are options. One is found if it is a file of the kind's package,
an entry point of the group with the package's name, or named as `module:Class` or `path/to/file.py:Class`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, Generic, TypeVar

from testbed.errors import ScenarioError

T = TypeVar("T")


@dataclass(frozen=True)
class Registry(Generic[T]):
    """All things of one kind."""

    word: str  # for people: "method"
    base: type[T]
    package: str  # where the built-in ones live; also the group of entry points
    contract: str  # what one's own must define

    def find(self, name: str, beside: Path | None = None) -> type[T]:
        """The class of that name. Files are looked for in the directory `beside`, then in the current one."""
        if ":" in name:
            return self._outside(name, beside)
        if name in self._built_in:
            return self._built_in[name]
        plugins = self._plugins()
        if name in plugins:
            return self._plugin(plugins[name])
        known = sorted({*self._built_in, *plugins})
        raise ScenarioError(
            f"{self.word}: there is no {name!r}{_did_you_mean(name, known)}",
            hint=f"there are {', '.join(known)}; your own is named module:Class or path/to/file.py:Class",
        )

    def available(self) -> dict[str, type[T]]:
        """All that have a plain name."""
        found = {**self._built_in, **{name: self._plugin(entry) for name, entry in self._plugins().items()}}
        return dict(sorted(found.items()))

    def split(self, spec: object) -> tuple[str, dict[str, Any]]:
        """A name and its options, from `name` or `{name: {option: value}}`."""
        if isinstance(spec, str):
            return spec, {}
        if isinstance(spec, Mapping) and len(spec) == 1:
            ((name, options),) = spec.items()
            if options is None or isinstance(options, Mapping):
                return str(name), {str(key): value for key, value in (options or {}).items()}
        raise ScenarioError(
            f"{self.word}: {spec!r} is neither a name nor one name with its options",
            hint="write name, or {name: {option: value}}",
        )

    def check_options(self, name: str, kind: type[T], options: Iterable[str]) -> None:
        """All of them exist."""
        known = [option.name for option in fields(kind)]  # type: ignore[arg-type]  # the base is a dataclass
        for key in options:
            if key not in known:
                raise ScenarioError(
                    f"{self.word} {name}: there is no option {key!r}{_did_you_mean(key, known)}",
                    hint=f"{name} has {', '.join(known)}" if known else f"{name} has no options",
                )

    @cached_property
    def _built_in(self) -> dict[str, type[T]]:
        found = pkgutil.iter_modules(importlib.import_module(self.package).__path__)
        modules = [importlib.import_module(f"{self.package}.{module.name}") for module in found]
        return {_name(kind): kind for module in modules for kind in self._defined_in(module)}

    def _defined_in(self, module: ModuleType) -> list[type[T]]:
        kinds = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, self.base)]
        return [kind for kind in kinds if kind.__module__ == module.__name__ and not inspect.isabstract(kind)]

    def _plugins(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=self.package)}

    def _plugin(self, entry: EntryPoint) -> type[T]:
        try:
            kind = entry.load()
        except (Exception, SystemExit) as error:  # a plug-in may fail in any way; the user must learn which one did
            raise ScenarioError(f"{self.word} {entry.name}: {entry.value} cannot be loaded: {error}") from error
        return self._checked(kind, entry.value)

    def _outside(self, name: str, beside: Path | None) -> type[T]:
        where, _, attribute = name.rpartition(":")
        file = Path(where) if where.endswith(".py") else Path(*where.split(".")).with_suffix(".py")
        places = list(dict.fromkeys(place / file for place in (beside, Path()) if place is not None))
        found = next((place for place in places if place.is_file()), None)
        if found is None and where.endswith(".py"):
            raise ScenarioError(f"{self.word} {name}: there is no file {' or '.join(map(str, places))}")
        try:
            module = importlib.import_module(where) if found is None else _load(found.resolve())
        except (Exception, SystemExit) as error:  # someone else's module may fail in any way
            place = "" if found is None else _line_in(found.resolve(), error)
            raise ScenarioError(
                f"{self.word} {name}: {where}{place} cannot be imported: {type(error).__name__}: {error}"
            ) from error
        if not hasattr(module, attribute):
            mine = [kind.__name__ for kind in self._defined_in(module)]
            raise ScenarioError(
                f"{self.word} {name}: {where} has no {attribute!r}{_did_you_mean(attribute, mine)}",
                hint=f"it defines {', '.join(mine)}" if mine else f"it defines no {self.word}",
            )
        return self._checked(getattr(module, attribute), name)

    def _checked(self, kind: object, name: str) -> type[T]:
        if not (isinstance(kind, type) and issubclass(kind, self.base)):
            raise ScenarioError(f"{self.word} {name}: is no {self.word}", hint=self.contract)
        for wrong in breaches(kind, self.base):
            raise ScenarioError(f"{self.word} {name}: {wrong}", hint=self.contract)
        return kind


def breaches(kind: type[Any], base: type[Any]) -> Iterator[str]:
    """Where a class is not what its base asks for: file:line, and what is wrong there."""
    missing = sorted(getattr(kind, "__abstractmethods__", ()))
    if missing:
        yield f"{_place(kind)}: {kind.__name__} does not define {', '.join(missing)}"
    if inspect.get_annotations(kind) and "__dataclass_fields__" not in vars(kind):
        yield f"{_place(kind)}: {kind.__name__} has options and is no dataclass; put @dataclass(frozen=True) above it"
    for name, wanted in inspect.getmembers(base, inspect.isfunction):
        own = inspect.getattr_static(kind, name)
        if name.startswith("_") or own is wanted or not inspect.isfunction(own):
            continue
        names = list(inspect.signature(wanted).parameters)
        try:
            inspect.signature(own).bind(*names)
        except TypeError:
            yield f"{_place(own)}: {own.__qualname__} should take ({', '.join(names)})"


def _place(thing: Any) -> str:
    """ "mine.py:12": where a class or function begins."""
    try:
        return f"{Path(inspect.getsourcefile(thing) or '').name}:{inspect.getsourcelines(thing)[1]}"
    except (OSError, TypeError):  # made at run time
        return str(thing.__module__)


def _line_in(file: Path, error: BaseException) -> str:
    """ ":12": where in that file an error came up; nothing where it tells itself."""
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f":{lines[-1]}" if lines else ""


def _name(kind: type[Any]) -> str:
    return str(kind.name)


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word.lower(), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _load(file: Path) -> ModuleType:
    """Import a file once, under a name of its own: two scenarios may each have a `mine.py`."""
    name = f"testbed_user:{file}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
