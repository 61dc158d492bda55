from __future__ import annotations

from math import exp, log
from pathlib import Path

import numpy as np
import pytest
import torch

from testbed.errors import ScenarioError
from testbed.tasks import datasets, store, text
from testbed.tasks.base import Task, make

SMALL = {"model": "lstm", "hidden": 16, "layers": 1, "dropout": 0.0, "batch": 4, "bptt": 10}


def lstm(data_dir: Path, rank: int = 0, size: int = 2, **options: object) -> Task:
    task = make({**SMALL, **options}, rank=rank, size=size, seed=1, data_dir=data_dir)
    task.bind(task.initial())
    return task


def test_targets_are_the_next_tokens(data_dir: Path) -> None:
    task = lstm(data_dir)
    assert isinstance(task, text.TextTask)
    stream = store.load(datasets.TEXT, data_dir).arrays["train_words"]
    inputs, targets = task._windows(stream, np.array([0, 7]))
    assert inputs.tolist() == [stream[:10].tolist(), stream[70:80].tolist()]
    assert targets.tolist() == [stream[1:11].tolist(), stream[71:81].tolist()]


def test_contiguous_workers_read_disjoint_pieces_in_order(data_dir: Path) -> None:
    pieces = []
    for rank in range(2):
        task = lstm(data_dir, rank, carry=True)
        assert isinstance(task, text.TextTask)
        length = task._order.length  # type: ignore[attr-defined]
        windows = np.stack([task._order(step) for step in range(length)])
        assert np.all(np.diff(windows, axis=0) == 1), "a stream does not advance window by window"
        pieces.append(set(windows.ravel().tolist()))
    assert not pieces[0] & pieces[1]
    assert max(pieces[0]) < min(pieces[1])


def test_by_source_gives_each_author_to_one_worker(data_dir: Path) -> None:
    stored = store.load(datasets.TEXT, data_dir)
    authors = text.sources(stored, "words", 10)
    assert len(set(authors)) == 8
    owners: dict[int, set[int]] = {}
    for rank in range(4):
        task = lstm(data_dir, rank, 4, split="by-source", batch=10_000)
        assert isinstance(task, text.TextTask)
        for author in set(authors[task._order(0)].tolist()):
            owners.setdefault(author, set()).add(rank)
    assert len(owners) == 8
    assert all(len(ranks) == 1 for ranks in owners.values())
    with pytest.raises(ScenarioError, match="8 sources are too few for 9 workers"):
        lstm(data_dir, 0, 9, split="by-source")


def test_the_source_of_a_window_is_that_of_its_first_token(data_dir: Path) -> None:
    stored = store.load(datasets.TEXT, data_dir)
    starts, authors = stored.arrays["train_bytes_starts"], stored.arrays["train_authors"]
    found = text.sources(stored, "bytes", 16)
    for window in (0, 5, len(found) // 2, len(found) - 1):
        document = max(i for i, start in enumerate(starts) if start <= window * 16)
        assert found[window] == authors[document]


def test_perplexity_is_the_exponential_of_the_loss_and_falls(data_dir: Path) -> None:
    task = lstm(data_dir, size=1)
    x = task.initial()
    task.bind(x)
    start = task.evaluate(x)
    words = text.vocabulary(store.load(datasets.TEXT, data_dir), "words")
    assert start["loss"] == pytest.approx(log(words), abs=0.3)
    assert start["perplexity"] == pytest.approx(exp(start["loss"]))
    out = torch.empty_like(x)
    for step in range(200):
        task.gradient(step, out)
        x.sub_(out, alpha=1.0)
    assert task.evaluate(x)["perplexity"] < 0.95 * start["perplexity"]


def test_a_part_of_the_held_out_text_stands_for_all(data_dir: Path) -> None:
    whole, part = lstm(data_dir), lstm(data_dir, test_samples=8)
    x = whole.initial()
    losses = whole.evaluate(x)["loss"], part.evaluate(x)["loss"]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_without_carry_a_step_depends_on_nothing_before_it(data_dir: Path) -> None:
    first, second = lstm(data_dir), lstm(data_dir)
    for step in range(3):
        first.loss_of_step(step)
    assert first.loss_of_step(3).item() == second.loss_of_step(3).item()


def test_carry_goes_on_from_the_step_before(data_dir: Path) -> None:
    run, alone = lstm(data_dir, carry=True), lstm(data_dir, carry=True)
    losses = [run.loss_of_step(step).item() for step in range(4)]
    assert run.loss_of_step(3).item() == losses[3], "a repeated step starts from the same state"
    assert alone.loss_of_step(0).item() == losses[0]
    jumped = lstm(data_dir, carry=True)
    assert jumped.loss_of_step(3).item() != losses[3], "there was no state to carry"
    again = lstm(data_dir, carry=True)
    assert [again.loss_of_step(step).item() for step in range(4)] == losses
    out = torch.empty_like(run.initial())
    run.gradient(4, out)  # the graph ends at the window's start: nothing of the earlier steps is freed twice
    run.gradient(5, out)
    assert isinstance(run, text.TextTask)
    end = run._order.length  # type: ignore[attr-defined]
    restarted = run.loss_of_step(end).item()
    assert restarted == losses[0], "the streams begin again"


def test_a_resumed_run_goes_on_from_the_carried_state(data_dir: Path) -> None:
    run = lstm(data_dir, carry=True)
    for step in range(3):
        run.loss_of_step(step)
    resumed = lstm(data_dir, carry=True)
    assert isinstance(run, text.TextTask)
    assert isinstance(resumed, text.TextTask)
    resumed.load_state(run.state())
    assert resumed.loss_of_step(3).item() == run.loss_of_step(3).item()
    assert lstm(data_dir, carry=True).loss_of_step(3).item() != run.loss_of_step(3).item()


def test_a_window_longer_than_the_text_says_so(data_dir: Path) -> None:
    with pytest.raises(ScenarioError, match="shorter than a window"):
        lstm(data_dir, bptt=10**7)


def test_too_few_windows_for_the_streams_say_so(data_dir: Path) -> None:
    with pytest.raises(ScenarioError, match="too few for 4000 streams"):
        lstm(data_dir, carry=True, batch=4000)
