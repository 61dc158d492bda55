"""Singular values of the difference between two neighbours' models, layer by layer: why a low-rank sketch of it says so
much. Needs models, which a run keeps only while it trains: of an interrupted cell, the snapshots are still there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from testbed.results.run import Run

from . import reading, style
from .labels import End, at_ends

MOST_LAYERS = 8
HEADER = 16  # bytes before the numbers: time, bytes sent


def draw(run: Run, *, cell: str | None = None) -> Figure:
    """Of workers 0 and 1 at the last step that both kept, each layer's values relative to its largest."""
    found = [one for one in ([cell] if cell else list(run.cells["cell"])) if _steps(run, one)]
    if not found:
        where = f"cell {cell} of {run.name}" if cell else run.name
        raise reading.LackingError(
            f"{where} keeps no models, which the spectrum of their differences needs",
            hint="snapshots are removed when a cell is done; an interrupted one still has them",
        )
    step = _steps(run, found[0])[-1]
    models = [_model(run, found[0], step, rank) for rank in (0, 1)]
    spectra = _spectra(run, models[1] - models[0])
    if not spectra:
        raise reading.LackingError(f"{run.name}: two workers have the same model at step {step}, or no matrix in it")
    made = style.figure()
    axes = style.bare(made.subplots())
    ends = []
    for index, (name, values) in enumerate(spectra[:MOST_LAYERS]):
        colour = style.OTHERS[index % len(style.OTHERS)]
        ranks = np.arange(1, len(values) + 1)
        axes.plot(ranks, values, color=colour, lw=1.4, ls=style.DASHES[index // len(style.OTHERS)])
        ends.append(End(float(ranks[-1]), float(values[-1]), name, colour))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yscale("log")
    axes.set_xlabel("singular value, by size")
    axes.set_ylabel("relative to the largest")
    style.title(axes, f"difference of two models after {step} steps")
    at_ends(made, [(axes, ends)])
    more = f"{MOST_LAYERS} of {len(spectra)} layers" if len(spectra) > MOST_LAYERS else ""
    style.remark(made, f"cell {found[0]}", more)
    return made


def _steps(run: Run, cell: str) -> list[int]:
    """Steps at which the first two workers' models are there."""
    folder = run.directory.cell(cell) / "snapshots"
    kept = [{int(path.stem) for path in folder.glob(f"*.{rank}") if path.stem.isdecimal()} for rank in (0, 1)]
    return sorted(kept[0] & kept[1])


def _model(run: Run, cell: str, step: int, rank: int) -> NDArray[np.float32]:
    path: Path = run.directory.cell(cell) / "snapshots" / f"{step:08d}.{rank}"
    return np.fromfile(path, dtype=np.float32, offset=HEADER)


def _spectra(run: Run, difference: NDArray[np.float32]) -> list[tuple[str, NDArray[np.float64]]]:
    """By layer: those whose weights are a matrix, with all but the first dimension as one."""
    from testbed.tasks.spec import make

    task = make(run.scenario.task.spec, rank=0, size=int(run.cells["workers"].iloc[0]), seed=0)
    found = []
    for slot in task.layout.slots:
        values = difference[slot.start : slot.stop].astype(np.float64)
        if len(slot.shape) > 1 and np.abs(values).max() > 0:
            singular = np.linalg.svd(values.reshape(slot.shape[0], -1), compute_uv=False)
            found.append((slot.name, singular[singular > 0] / singular[0]))
    return found


if __name__ == "__main__":
    reading.command(draw)
