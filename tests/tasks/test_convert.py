from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from testbed.tasks import convert
from testbed.tasks.convert import END, HOLD_OUT, MalformedError

BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


def write_idx(path: Path, array: np.ndarray) -> None:
    header = np.array([0x0800 + array.ndim, *array.shape], ">i4").tobytes()
    path.write_bytes(gzip.compress(header + array.tobytes()))


@pytest.fixture
def fashion(tmp_path: Path) -> tuple[Path, np.ndarray]:
    images = np.random.default_rng(0).integers(0, 256, (6, 28, 28)).astype(np.uint8)
    inside = tmp_path / "usr" / "share" / "anywhere"
    inside.mkdir(parents=True)
    for part, chosen in (("train", slice(0, 4)), ("t10k", slice(4, 6))):
        write_idx(inside / f"{part}-images-idx3-ubyte.gz", images[chosen])
        write_idx(inside / f"{part}-labels-idx1-ubyte.gz", np.arange(6, dtype=np.uint8)[chosen])
    return inside, images


def test_idx_files_are_read(tmp_path: Path, fashion: tuple[Path, np.ndarray]) -> None:
    arrays = convert.idx_files(tmp_path).arrays
    assert np.array_equal(arrays["train_images"][..., 0], fashion[1][:4])
    assert np.array_equal(arrays["test_images"][..., 0], fashion[1][4:])
    assert arrays["train_labels"].tolist() == [0, 1, 2, 3]
    assert arrays["test_labels"].tolist() == [4, 5]


def test_idx_files_of_another_kind_are_refused(tmp_path: Path, fashion: tuple[Path, np.ndarray]) -> None:
    write_idx(fashion[0] / "train-images-idx3-ubyte.gz", np.zeros((4, 28), np.uint8))
    with pytest.raises(MalformedError, match=r"train-images-idx3-ubyte\.gz is not an idx file of bytes with 3 axes"):
        convert.idx_files(tmp_path)
    write_idx(fashion[0] / "train-images-idx3-ubyte.gz", np.zeros((5, 28, 28), np.uint8))
    with pytest.raises(MalformedError, match="5 images but 4 labels"):
        convert.idx_files(tmp_path)
    (fashion[0] / "train-images-idx3-ubyte.gz").unlink()
    with pytest.raises(MalformedError, match=r"expected one train-images-idx3-ubyte.gz, found 0"):
        convert.idx_files(tmp_path)


def test_both_forms_of_cifar_give_the_same_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = {name: rng.integers(0, 256, (3, 32, 32, 3)).astype(np.uint8) for name in BATCHES}
    labels = {name: rng.integers(0, 10, 3).astype(np.uint8) for name in BATCHES}
    images["data_batch_1"][0] = (200, 100, 50)  # a plain colour: red, green and blue are in that order

    site, package = tmp_path / "site", tmp_path / "package"
    site.mkdir()
    package.mkdir()
    with tarfile.open(site / "cifar-10-binary.tar.gz", "w:gz") as tar:
        for name in BATCHES:  # the official layout: label, 1024 red, 1024 green, 1024 blue
            planes = images[name].transpose(0, 3, 1, 2).reshape(3, -1)
            content = np.concatenate([labels[name][:, None], planes], 1).tobytes()
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    for name in BATCHES:
        Image.fromarray(images[name].reshape(3, 1024, 3)).save(package / f"{name}.png")
    train = [int(label) for name in BATCHES[:5] for label in labels[name]]
    (package / "train_lables.json").write_text(json.dumps(train))
    (package / "test_lables.json").write_text(json.dumps(labels["test_batch"].tolist()))

    records, pictures = convert.cifar_records(site).arrays, convert.cifar_pictures(package).arrays
    assert records["train_images"].shape == (15, 32, 32, 3)
    assert records["train_images"][0, 5, 7].tolist() == [200, 100, 50]
    assert np.array_equal(records["test_images"], images["test_batch"])
    for name, array in records.items():
        assert np.array_equal(array, pictures[name]), name
        assert array.flags.c_contiguous


def test_texts_become_words_and_bytes() -> None:
    documents = [(f"author {i // 20}", f"We the People's union, the {'state' if i else 'rare'}.") for i in range(32)]
    converted = convert.texts(documents)
    vocabulary = converted.lists["vocabulary"]
    held_out = [i for i in range(32) if i % HOLD_OUT == HOLD_OUT // 2]

    def words(part: str) -> list[str]:
        return [vocabulary[i] for i in converted.arrays[f"{part}_words"]]

    sentence = ["We", "the", "People's", "union", ",", "the", "state", ".", END]
    assert words("train")[:9] == [*sentence[:6], "<unk>", ".", END]
    assert words("train")[9:18] == sentence
    assert words("test") == sentence * len(held_out)
    assert vocabulary[:3] == ["<unk>", END, "the"], "the commonest word first"
    assert "rare" not in vocabulary
    text = bytes(converted.arrays["test_bytes"]).decode()
    assert text == "".join(documents[i][1] + "\n" for i in held_out)
    starts = converted.arrays["train_words_starts"]
    assert len(starts) == 32 - len(held_out)
    assert starts[:3].tolist() == [0, 9, 18]
    authors = converted.lists["authors"]
    assert [authors[i] for i in converted.arrays["test_authors"]] == [documents[i][0] for i in held_out]


def test_addresses_are_read_in_the_order_of_their_years(tmp_path: Path) -> None:
    data = tmp_path / "package" / "data"
    data.mkdir(parents=True)
    for year in reversed(range(1790, 1810)):
        name = "Washington" if year < 1797 else "Adams" if year < 1801 else "Jefferson"
        address = {"year": year, "name": name, "text": f"{name} speaks", "party": "none"}
        (data / f"{year}_{name.lower()}_n.json").write_text(json.dumps(address))
    (tmp_path / "package" / "datapackage.json").write_text("{}")
    converted = convert.addresses(tmp_path)
    assert converted.lists["authors"] == ["Washington", "Adams", "Jefferson"]
    with pytest.raises(MalformedError, match="no addresses"):
        convert.addresses(tmp_path / "package" / "data" / "none")
    for path in list(data.iterdir())[:10]:
        path.unlink()
    with pytest.raises(MalformedError, match="10 documents are too few"):
        convert.addresses(tmp_path)
