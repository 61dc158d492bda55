"""Wire sizes to the byte: the table of algorithms.md §2, for three models."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.bench.compressors import resnet20
from testbed.compressors import make
from testbed.flat import Layout

from .examples import EVERY, MIXED, NAMES, gaussian


def lstm() -> Layout:
    """Three layers of 650, tied embedding, 28 869 words."""

    def tensors() -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "embedding", (28_869, 650)
        for layer in range(3):
            yield f"{layer}.weight_ih", (2600, 650)
            yield f"{layer}.weight_hh", (2600, 650)
            yield f"{layer}.bias_ih", (2600,)
            yield f"{layer}.bias_hh", (2600,)
        yield "decoder.bias", (28_869,)

    return Layout.of(tensors())


def resnet18() -> Layout:
    """The CIFAR variant: 3×3 stem, 10 classes."""

    def tensors() -> Iterator[tuple[str, tuple[int, ...]]]:
        def conv(name: str, inputs: int, outputs: int, kernel: int) -> Iterator[tuple[str, tuple[int, ...]]]:
            yield f"{name}.weight", (outputs, inputs, kernel, kernel)
            yield f"{name}.bn.weight", (outputs,)
            yield f"{name}.bn.bias", (outputs,)

        yield from conv("stem", 3, 64, 3)
        channels = 64
        for stage, outputs in enumerate((64, 128, 256, 512)):
            for block in range(2):
                yield from conv(f"{stage}.{block}.a", channels, outputs, 3)
                yield from conv(f"{stage}.{block}.b", outputs, outputs, 3)
                if channels != outputs:
                    yield from conv(f"{stage}.{block}.shortcut", channels, outputs, 1)
                channels = outputs
        yield "fc.weight", (10, 512)
        yield "fc.bias", (10,)

    return Layout.of(tensors())


def test_layouts_are_the_models_of_the_table() -> None:
    small = resnet20()
    matrices = [slot for slot in small.slots if len(slot.shape) > 1]
    assert (small.numel, len(small.slots), len(matrices)) == (272_474, 65, 22)
    assert small.numel - sum(slot.numel for slot in matrices) == 1_578
    assert lstm().numel == 28_949_319
    assert resnet18().numel == 11_173_962


@pytest.mark.parametrize(
    ("spec", "resnet20_bytes", "lstm_bytes", "resnet18_bytes"),
    [
        ("identity", 1_089_896, 115_797_276, 44_695_848),
        ({"quantize": "8bit"}, 272_994, 28_949_431, 11_174_458),
        ({"quantize": "4bit"}, 136_757, 14_474_772, 5_587_477),
        ({"quantize": "2bit"}, 68_639, 7_237_443, 2_793_987),
        ("sign", 34_320, 3_618_721, 1_396_994),
        ({"topk": "10%"}, 217_768, 23_159_448, 8_938_928),
        ({"topk": "1%"}, 21_968, 2_315_936, 893_784),
        # P and Q of rank 1 and the vectors: what PowerGossip sends in two iterations
        ({"lowrank": 1}, 32_508, 373_952, 183_740),
    ],
)
def test_sizes_of_the_table(spec: object, resnet20_bytes: int, lstm_bytes: int, resnet18_bytes: int) -> None:
    compressor = make(spec)
    assert compressor.bind(resnet20(), 0).nbytes == resnet20_bytes
    assert compressor.bind(lstm(), 0).nbytes == lstm_bytes
    assert compressor.bind(resnet18(), 0).nbytes == resnet18_bytes


def test_sizes_that_the_table_implies() -> None:
    layout = resnet20()
    kept = 21_968 // 8
    assert make("fp16").bind(layout, 0).nbytes == 2 * 272_474
    assert make({"topk": {"fraction": "1%", "values": "fp16"}}).bind(layout, 0).nbytes == 6 * kept
    assert make({"randomk": "1%"}).bind(layout, 0).nbytes == 8 + 4 * kept
    assert make({"qsgd": "4bit"}).bind(layout, 0).nbytes == 136_757 - 4 * 65  # one fp32 a tensor instead of two
    assert make({"step": {"step": 0.1, "bits": 16}}).bind(layout, 0).nbytes == 2 * 272_474
    buckets = sum(-(-slot.numel // 512) for slot in layout.slots)
    assert make({"quantize": {"bucket": 512}}).bind(layout, 0).nbytes == 272_474 + 8 * buckets


@pytest.mark.parametrize("spec", EVERY, ids=NAMES)
def test_messages_are_as_long_as_announced(spec: object) -> None:
    codec = make(spec).bind(MIXED, 1)
    message = codec.compress(gaussian(MIXED), 0)
    assert message.nbytes == codec.nbytes


def test_fractions_do_not_lose_an_element_to_rounding() -> None:
    layout = Layout.of([("x", (100,))])
    assert make({"topk": "29%"}).bind(layout, 0).nbytes == 8 * 29  # 0.29·100 is 28.999999999999996
    assert make({"topk": "0.1%"}).bind(layout, 0).nbytes == 8  # never less than one
