"""Builds the worker image through the engine's own builder and reports the steps. commands/image.py calls it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from testbed import __version__
from testbed.errors import MissingError, StorageError, TestbedError
from testbed.runtime.image import wheels
from testbed.runtime.image.context import DOCKERFILE, archive, members

if TYPE_CHECKING:
    from docker import DockerClient

VERSION, TORCH = "testbed.version", "testbed.torch"  # labels of the image
BASE = f"python:{wheels.PYTHON}-slim"  # of this Python, whose wheels are sent
_STEP = re.compile(r"Step (\d+)/(\d+) : (.*)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NOISE = ("--->", "Removing intermediate container")  # of the builder itself


@dataclass(frozen=True)
class Image:
    """A built image."""

    tag: str
    size: int  # bytes


def default_tag(*, cuda: bool) -> str:
    return f"testbed/worker:{__version__}" + ("-cuda" if cuda else "")


def build(
    client: DockerClient, *, cuda: bool = False, base: str = BASE, tag: str | None = None, say: Callable[[str], None]
) -> Image:
    """Fetch what is missing, send it, build. `say` gets progress messages."""
    tag = tag or default_tag(cuda=cuda)
    folder = wheels.wheelhouse(cuda=cuda, say=say)
    found = members(folder)
    say(f"sending {sum(member.path.stat().st_size for member in found) / 1e6:.0f} MB to the engine")
    stream = client.api.build(
        fileobj=archive(found),
        custom_context=True,
        dockerfile=DOCKERFILE,
        tag=tag,
        buildargs=arguments(base, cuda=cuda),
        network_mode="none",
        rm=True,
        forcerm=True,
        decode=True,
        timeout=None,  # installing torch takes as long as it takes
    )
    follow(stream, base, say)
    return Image(tag, int(client.images.get(tag).attrs["Size"]))


def arguments(base: str, *, cuda: bool) -> dict[str, str]:
    """Return the Dockerfile's ARGs."""
    torch = wheels.torch_build(metadata.version("torch"), cuda=cuda).partition("==")[2].lstrip("=")
    return {"BASE": base, "PYTHON": wheels.PYTHON, "VERSION": __version__, "TORCH": torch}


def follow(stream: Iterable[Mapping[str, Any]], base: str, say: Callable[[str], None]) -> None:
    """Report the steps; turn a build error into one that people can act on."""
    step, said = "", ""
    for message in stream:
        text = _COLOUR.sub("", str(message.get("stream", ""))).strip()
        if match := _STEP.match(text):
            number, of, step = match.groups()
            if step.startswith(("FROM", "COPY", "RUN")):  # what takes time
                say(f"{number}/{of} {_short(step, base)}")
        elif text and not text.startswith(_NOISE):
            said = text
        if str(message.get("status", "")).startswith("Pulling from"):
            say(f"pulling {base}")
        if error := message.get("error"):
            raise _explained(str(error), step, said, base)


def _explained(error: str, step: str, said: str, base: str) -> TestbedError:
    if "no space left on device" in f"{error} {said}".lower():
        return StorageError("the Docker engine has no room left", hint="docker system df shows what takes it")
    if step.startswith("FROM"):
        return MissingError(
            f"the base image {base} cannot be had: {error}",
            hint=f"--base IMAGE takes another one, with Python {wheels.PYTHON}, venv and glibc; docker images lists "
            "those that are here",
        )
    reason = said.splitlines()[-1] if said else error
    return TestbedError(
        f"the image could not be built: {reason}\n  in {_short(step, base)}",
        hint=f"the base must have Python {wheels.PYTHON}, venv and glibc: has {base}?",
    )


def _short(step: str, base: str) -> str:
    text = " ".join(step.split()).replace("${BASE}", base)
    return text if len(text) <= 60 else text[:59] + "…"
