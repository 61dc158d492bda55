from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from testbed.errors import MissingError, ScenarioError
from testbed.tasks import datasets, store
from testbed.tasks.convert import Converted
from testbed.tasks.datasets import Dataset
from testbed.tasks.fetch import fetch
from testbed.tasks.sources import File, Source, UnavailableError, Website

from .conftest import Made, pictures


@dataclass(frozen=True)
class Broken(Source):
    """A source that fails in the way it is told."""

    error: Callable[[], BaseException]
    kind: ClassVar[str] = "broken"

    def describe(self) -> str:
        return "broken by a test"

    def obtain(self, folder: Path) -> None:
        (folder / "half a file").write_text("some bytes")
        raise self.error()

    def read(self, folder: Path) -> Converted:
        raise AssertionError("never obtained")


def small() -> Converted:
    return pictures(4, 4, 1, train=20, test=10)


def dataset(*sources: Source, digest: str | None = None) -> Dataset:
    return Dataset("small", "a few pictures", "none", sources, digest)


def quiet(_: str) -> None:
    pass


def left_over(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name not in ("small", ".small.lock"))


def test_a_data_set_is_stored_with_a_manifest(tmp_path: Path) -> None:
    said: list[str] = []
    folder = fetch(dataset(Made(small)), tmp_path / "new" / "place", say=said.append)
    assert folder == tmp_path / "new" / "place" / "small"
    assert left_over(folder.parent) == []
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["source"] == {"kind": "made", "from": "made by a test"}
    assert manifest["arrays"]["train_images"] == {"shape": [20, 4, 4, 1], "type": "uint8"}
    assert manifest["sha256"] == store.digest(small().arrays)
    assert manifest["bytes"] == 20 * 17 + 10 * 17
    assert "train_images 20×4×4×1" in "\n".join(said)
    stored = store.load(dataset(Made(small)), tmp_path / "new" / "place")
    for name, array in small().arrays.items():
        assert np.array_equal(stored.arrays[name], array)
    assert not stored.arrays["train_images"].flags.writeable, "workers share the file: nobody may write to it"


def test_sources_are_tried_in_order_and_reasons_are_kept(tmp_path: Path) -> None:
    said: list[str] = []
    made = Made(small)
    fetch(dataset(Broken(lambda: UnavailableError("the site is down")), made), tmp_path, say=said.append)
    assert len(made.calls) == 1
    assert "  the site is down" in said
    assert left_over(tmp_path) == []


def test_when_nothing_works_every_reason_is_told(tmp_path: Path) -> None:
    website = Website((File((tmp_path / "absent.bin").as_uri(), "sha256:00"),), lambda _: small())
    with pytest.raises(MissingError) as caught:
        fetch(dataset(website, Broken(lambda: UnavailableError("no such tool"))), tmp_path, say=quiet)
    assert "no source of small worked" in str(caught.value)
    assert "website: file:" in str(caught.value)
    assert "broken: no such tool" in str(caught.value)
    assert "testbed data fetch small --from FOLDER" in (caught.value.hint or "")
    assert not (tmp_path / "small").exists()
    assert left_over(tmp_path) == []


def test_a_checksum_mismatch_moves_on_to_the_next_source(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"not it")
    said: list[str] = []
    root = tmp_path / "root"
    website = Website((File((tmp_path / "data.bin").as_uri(), "md5:" + "0" * 32),), lambda _: small())
    made = Made(small)
    fetch(dataset(website, made), root, say=said.append)
    assert len(made.calls) == 1
    assert any("data.bin: md5 is" in line for line in said)


def test_other_arrays_than_the_published_are_refused(tmp_path: Path) -> None:
    right = store.digest(small().arrays)
    wrong = Made(lambda: pictures(4, 4, 1, train=21, test=10))
    with pytest.raises(MissingError, match=f"not the published data: sha256 .* not {right}"):
        fetch(dataset(wrong, digest=right), tmp_path, say=quiet)
    assert not (tmp_path / "small").exists()
    fetch(dataset(wrong, Made(small), digest=right), tmp_path, say=quiet)
    assert store.load(dataset(wrong), tmp_path).manifest["sha256"] == right


def test_unreadable_files_move_on_to_the_next_source(tmp_path: Path) -> None:
    def unreadable() -> Converted:
        raise EOFError("Compressed file ended before the end-of-stream marker was reached")

    said: list[str] = []
    fetch(dataset(Made(unreadable), Made(small)), tmp_path, say=said.append)
    assert any("cannot be read: Compressed file ended" in line for line in said)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_interrupted_fetch_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error):
        fetch(dataset(Broken(error)), tmp_path, say=quiet)
    assert not (tmp_path / "small").exists()
    assert left_over(tmp_path) == []


def test_what_a_killed_fetch_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".small.abc123" / "raw").mkdir(parents=True)
    (tmp_path / ".other.abc123").mkdir()
    fetch(dataset(Made(small)), tmp_path, say=quiet)
    assert left_over(tmp_path) == [".other.abc123"]


def test_a_data_set_is_fetched_once_unless_forced_or_damaged(tmp_path: Path) -> None:
    made = Made(small)
    folder = fetch(dataset(made), tmp_path, say=quiet)
    said: list[str] = []
    assert fetch(dataset(made), tmp_path, say=said.append) == folder
    assert len(made.calls) == 1
    assert "intact" in said[0]
    fetch(dataset(made), tmp_path, force=True, say=quiet)
    assert len(made.calls) == 2
    with (folder / "train_images.npy").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    said.clear()
    fetch(dataset(made), tmp_path, say=said.append)
    assert len(made.calls) == 3
    assert "damaged" in said[0]
    assert store.digest(store.load(dataset(made), tmp_path).arrays) == store.digest(small().arrays)
    assert left_over(tmp_path) == []


def test_workers_that_map_an_old_copy_keep_it(tmp_path: Path) -> None:
    made = Made(small)
    fetch(dataset(made), tmp_path, say=quiet)
    mapped = store.load(dataset(made), tmp_path).arrays
    fetch(dataset(made), tmp_path, force=True, say=quiet)
    assert store.digest(mapped) == store.digest(small().arrays)


def test_damage_is_said_when_loading(tmp_path: Path) -> None:
    folder = fetch(dataset(Made(small)), tmp_path, say=quiet)
    whole = (folder / "train_images.npy").read_bytes()
    for content in (whole[:-50], b"", whole[:100]):
        (folder / "train_images.npy").write_bytes(content)
        with pytest.raises(MissingError, match=r"small in .* is damaged") as caught:
            store.load(dataset(Made(small)), tmp_path)
        assert caught.value.hint == "testbed data fetch --force small"
    (folder / "train_images.npy").unlink()
    with pytest.raises(MissingError, match="damaged"):
        store.load(dataset(Made(small)), tmp_path)
    np.save(folder / "train_images.npy", np.zeros((3, 4, 4, 1), np.uint8))
    with pytest.raises(MissingError, match="the manifest says otherwise"):
        store.load(dataset(Made(small)), tmp_path)


def test_two_fetches_at_once_share_the_work(tmp_path: Path) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slowly() -> Converted:
        began.set()
        assert go_on.wait(30)
        return small()

    made = Made(slowly)
    said: list[str] = []
    waiting = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        if "waiting" in line:
            waiting.set()

    first = threading.Thread(target=lambda: fetch(dataset(made), tmp_path, say=quiet))
    second = threading.Thread(target=lambda: fetch(dataset(made), tmp_path, say=say))
    first.start()
    assert began.wait(30)
    second.start()
    assert waiting.wait(30)
    go_on.set()
    first.join(30)
    second.join(30)
    assert len(made.calls) == 1
    assert any("intact" in line for line in said)


def test_one_source_can_be_chosen(tmp_path: Path) -> None:
    made = Made(small)
    both = dataset(Broken(lambda: UnavailableError("not me")), made)
    fetch(both, tmp_path, source="made", say=quiet)
    assert len(made.calls) == 1
    with pytest.raises(ScenarioError, match="unknown source of small 'mad'; allowed: broken, made; did you mean made"):
        fetch(both, tmp_path, source="mad", say=quiet)


def test_a_folder_of_the_sites_files_will_do(tmp_path: Path) -> None:
    import hashlib

    brought = tmp_path / "brought"
    brought.mkdir()
    (brought / "data.bin").write_bytes(b"content")
    checksum = "sha256:" + hashlib.sha256(b"content").hexdigest()

    def read(folder: Path) -> Converted:
        assert (folder / "data.bin").read_bytes() == b"content"
        return small()

    website = Website((File("https://example.org/data.bin", checksum),), read)
    fetch(dataset(website), tmp_path / "root", local=brought, say=quiet)
    manifest = store.load(dataset(website), tmp_path / "root").manifest
    assert manifest["source"] == {"kind": "folder", "from": f"{brought / 'data.bin'} ({checksum})"}
    with pytest.raises(ScenarioError, match="no files of its own site"):
        fetch(dataset(Made(small)), tmp_path / "root", local=brought, say=quiet)


def test_a_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(MissingError, match="cannot write to") as caught:
        fetch(dataset(Made(small)), tmp_path / "file", say=quiet)
    assert "TESTBED_DATA" in (caught.value.hint or "")


def test_the_catalogue_pins_what_every_source_must_give() -> None:
    for known in datasets.ALL.values():
        assert bool(known.sources) == (known.digest is not None), known.name
        for source in known.sources:
            if isinstance(source, Website):
                assert all(file.checksum.startswith(("md5:", "sha256:")) for file in source.files)


def test_the_place_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTBED_DATA", str(tmp_path / "told"))
    assert store.directory() == tmp_path / "told"
    assert store.directory(tmp_path / "argument") == tmp_path / "argument"
    monkeypatch.delenv("TESTBED_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert store.directory() == tmp_path / "cache" / "testbed" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store.directory() == tmp_path / ".cache" / "testbed" / "data"
