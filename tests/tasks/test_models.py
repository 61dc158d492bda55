from __future__ import annotations

import pytest
import torch
from torch import nn

from testbed.tasks.models.base import ImageShape, TextShape
from testbed.tasks.models.cnn import Cnn
from testbed.tasks.models.dense import Logistic, Mlp
from testbed.tasks.models.gpt import Gpt
from testbed.tasks.models.lstm import Lstm
from testbed.tasks.models.resnet import ResNet20

CIFAR = ImageShape(32, 32, 3, 10)


def count(module: nn.Module) -> tuple[int, int]:
    parameters = list(module.parameters())
    return sum(parameter.numel() for parameter in parameters), len(parameters)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_resnet20_has_the_papers_size(norm: str) -> None:
    module = ResNet20(norm=norm).build(CIFAR)
    assert count(module) == (272_474, 65)
    assert sum(parameter.ndim > 1 for parameter in module.parameters()) == 22
    assert sum(parameter.numel() for parameter in module.parameters() if parameter.ndim == 1) == 1_578


def test_lstm_has_the_papers_size_on_wikitext2() -> None:
    with torch.device("meta"):
        module = Lstm().build(TextShape(28_869, 30))
    assert count(module)[0] == 28_949_319
    with torch.device("meta"):
        loose = Lstm(tied=False).build(TextShape(28_869, 30))
    assert count(loose)[0] == 28_949_319 + 28_869 * 650


def test_batch_statistics_are_buffers_and_groups_have_none() -> None:
    assert len(list(ResNet20(norm="batch").build(CIFAR).buffers())) == 21 * 3
    assert not list(ResNet20(norm="group").build(CIFAR).buffers())


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (Logistic(), ImageShape(8, 8, 1, 10)),
        (Mlp(hidden=(32, 16, 8)), ImageShape(8, 8, 1, 10)),
        (Cnn(), ImageShape(8, 8, 1, 10)),
        (Cnn(), ImageShape(28, 28, 1, 10)),
        (Cnn(), CIFAR),
        (ResNet20(width=8), CIFAR),
        (ResNet20(width=4, norm="group"), ImageShape(28, 28, 1, 7)),
    ],
)
def test_image_models_score_every_class(model: Mlp, shape: ImageShape) -> None:
    images = torch.randn(3, shape.channels, shape.height, shape.width)
    scores = model.build(shape)(images)
    assert scores.shape == (3, shape.classes)
    assert torch.isfinite(scores).all()


@pytest.mark.parametrize("model", [Lstm(hidden=16, layers=2, dropout=0.0), Gpt(width=16, heads=2, layers=2)])
def test_text_models_do_not_look_ahead(model: Lstm | Gpt) -> None:
    torch.manual_seed(0)
    module = model.build(TextShape(50, 12))
    tokens = torch.randint(0, 50, (2, 12))
    scores, _ = module(tokens)
    assert scores.shape == (2, 12, 50)
    changed = tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 50
    others, _ = module(changed)
    torch.testing.assert_close(scores[:, :7], others[:, :7])
    assert not torch.allclose(scores[:, 7:], others[:, 7:])


def test_the_lstm_remembers_through_its_state() -> None:
    torch.manual_seed(0)
    module = Lstm(hidden=16, layers=2, dropout=0.0).build(TextShape(50, 6))
    tokens = torch.randint(0, 50, (2, 12))
    whole, _ = module(tokens)
    first, state = module(tokens[:, :6])
    second, _ = module(tokens[:, 6:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)


def test_fresh_models_guess() -> None:
    """The loss of an untrained model is near that of guessing, log of the number of choices."""
    torch.manual_seed(0)
    scores, _ = Gpt().build(TextShape(256, 64))(torch.randint(0, 256, (4, 64)))
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), torch.randint(0, 256, (256,)))
    assert abs(loss.item() - 5.545) < 0.3
