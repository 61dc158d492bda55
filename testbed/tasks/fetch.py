"""Gets a data set: tries its sources in order, converts, checks, puts it in place in one move. For `testbed data`."""

from __future__ import annotations

import datetime
import fcntl
import gzip
import json
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from testbed import __version__
from testbed.errors import MissingError, ScenarioError
from testbed.tasks import store
from testbed.tasks.convert import Converted, MalformedError
from testbed.tasks.datasets import Dataset, unknown
from testbed.tasks.sources import Folder, Source, UnavailableError, Website

Say = Callable[[str], None]


def fetch(
    dataset: Dataset,
    data_dir: Path | None = None,
    *,
    source: str | None = None,
    local: Path | None = None,
    force: bool = False,
    say: Say = print,
) -> Path:
    """The folder of the data set, fetched unless it is there and intact.

    `source` names the only source to try; `local` is a folder with the website's files, brought here by other means.
    """
    if not dataset.sources:
        say(f"{dataset.name}: comes with testbed, nothing to fetch")
        return store.SHIPPED
    sources = _chosen(dataset, source, local)
    root = store.directory(data_dir)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _lock(root, dataset, say):
            if not force and _intact(dataset, root, say):
                return root / dataset.name
            return _fetch(dataset, root, sources, say)
    except OSError as error:
        raise MissingError(
            f"cannot write to {root}: {error.strerror or error}", hint="set TESTBED_DATA to a folder with room"
        ) from error


def _chosen(dataset: Dataset, kind: str | None, local: Path | None) -> Sequence[Source]:
    if local is not None:
        website = next((source for source in dataset.sources if isinstance(source, Website)), None)
        if website is None:
            raise ScenarioError(f"{dataset.name} has no files of its own site that a folder could hold")
        return [Folder(website.files, website.read, local)]
    if kind is None:
        return dataset.sources
    if kind not in {source.kind for source in dataset.sources}:
        raise unknown(f"source of {dataset.name}", kind, [source.kind for source in dataset.sources])
    return [source for source in dataset.sources if source.kind == kind]


def _intact(dataset: Dataset, root: Path, say: Say) -> bool:
    if not store.present(dataset, root):
        return False
    try:
        stored = store.load(dataset, root)
        if store.digest(stored.arrays) == stored.manifest["sha256"]:
            say(f"{dataset.name}: already in {root / dataset.name}, intact")
            return True
        say(f"{dataset.name}: the copy in {root / dataset.name} is damaged, fetching it again")
    except MissingError as error:
        say(f"{error}; fetching it again")
    return False


def _fetch(dataset: Dataset, root: Path, sources: Sequence[Source], say: Say) -> Path:
    reasons: list[str] = []
    for source in sources:
        say(f"{dataset.name}: trying the {source.kind} source")
        with _workspace(root, dataset) as work:
            raw, ready = work / "raw", work / "ready"
            raw.mkdir()
            try:
                source.obtain(raw)
                converted = _read(source, raw)
                found = store.digest(converted.arrays)
                if dataset.digest is not None and found != dataset.digest:
                    raise MalformedError(
                        f"not the published data: sha256 of the arrays is {found}, not {dataset.digest}"
                    )
            except (UnavailableError, MalformedError) as error:
                reasons.append(f"{source.kind}: {error}")
                say(f"  {error}")
                continue
            _write(dataset, source, converted, found, ready)
            return _publish(ready, root / dataset.name, say)
    raise MissingError(
        f"no source of {dataset.name} worked:\n" + "\n".join(f"  {reason}" for reason in reasons),
        hint=_by_hand(dataset),
    )


def _read(source: Source, raw: Path) -> Converted:
    try:
        return source.read(raw)
    except (gzip.BadGzipFile, tarfile.TarError, zlib.error, EOFError, ValueError, KeyError) as error:
        raise MalformedError(f"cannot be read: {error}") from error


def _by_hand(dataset: Dataset) -> str:
    website = next((source for source in dataset.sources if isinstance(source, Website)), None)
    if website is None:
        return "fix one of the above and try again"
    names = ", ".join(file.name for file in website.files)
    return f"get {names} by other means, then: testbed data fetch {dataset.name} --from FOLDER"


def _write(dataset: Dataset, source: Source, converted: Converted, found: str, folder: Path) -> None:
    folder.mkdir()
    for name, array in converted.arrays.items():
        np.save(folder / f"{name}.npy", array)
    for name, lines in converted.lists.items():
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    manifest = {
        "name": dataset.name,
        "about": dataset.about,
        "licence": dataset.licence,
        "source": {"kind": source.kind, "from": source.describe()},
        "sha256": found,
        "arrays": {name: {"shape": list(a.shape), "type": str(a.dtype)} for name, a in converted.arrays.items()},
        "bytes": sum(array.nbytes for array in converted.arrays.values()),
        "fetched": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "testbed": __version__,
    }
    (folder / store.MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _publish(ready: Path, final: Path, say: Say) -> Path:
    """Into place with one rename; workers that still map an older copy keep it until they end."""
    if final.exists():
        final.rename(ready.parent / "old")
    os.rename(ready, final)
    manifest = json.loads((final / store.MANIFEST).read_text(encoding="utf-8"))
    shapes = ", ".join(f"{name} {'×'.join(map(str, listed['shape']))}" for name, listed in manifest["arrays"].items())
    say(f"  {manifest['bytes'] / 1e6:.1f} MB in {final}\n  {shapes}")
    return final


@contextmanager
def _workspace(root: Path, dataset: Dataset) -> Iterator[Path]:
    """A folder beside the final place, so that the last step is a rename; gone afterwards, whatever happened."""
    with tempfile.TemporaryDirectory(dir=root, prefix=f".{dataset.name}.") as work:
        yield Path(work)


@contextmanager
def _lock(root: Path, dataset: Dataset, say: Say) -> Iterator[None]:
    """One fetch of a data set at a time; what a killed one left behind is removed."""
    with (root / f".{dataset.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{dataset.name}: waiting for another fetch to finish")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in root.glob(f".{dataset.name}.*/"):
            shutil.rmtree(left)
        yield
