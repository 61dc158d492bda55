"""The bench measures every compressor against plain torch, and its plain torch does the same job."""

from __future__ import annotations

import json

import pytest
import torch
from click.testing import CliRunner

from testbed.bench import compressors as bench
from testbed.cli import cli
from testbed.compressors import available, make


def test_rows_for_every_compressor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ROUNDS", 3)
    result = CliRunner().invoke(cli, ["bench", "compressors", "--size", "20000", "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.output)
    measured = {row["metric"].split("(")[0].split()[0] for row in rows}
    assert measured == set(available())
    for row in rows:
        assert row["value"] > 0
        assert row["reference_value"] > 0
        assert row["spread"] >= 0
        assert (row["met"] is None) == (row["goal"] == "")


@pytest.mark.parametrize("case", bench.CASES, ids=lambda case: str(make(case.spec)))
def test_plain_torch_decodes_to_about_the_same(case: bench.Case) -> None:
    """A reference that does less work than we do would flatter us or shame us."""
    layout = bench.resnet20(width=5)
    x = torch.randn(layout.numel, generator=torch.Generator().manual_seed(0)) * 0.05
    theirs, ours = layout.zeros(), layout.zeros()
    encode, decode = case.torch_lines(x, layout, theirs)
    encode()
    decode()
    codec = make(case.spec).bind(layout, 0)
    codec.decompress_into(codec.compress(x, 0), ours, 0.5)
    errors = [float((2 * got - x).norm() / x.norm()) for got in (theirs, ours)]
    if not str(make(case.spec)).startswith("lowrank"):  # torch's own sends no vectors and iterates differently
        assert errors[0] == pytest.approx(errors[1], rel=0.6, abs=1e-3)
