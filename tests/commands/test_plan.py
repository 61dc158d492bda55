"""`testbed plan`: what people read fits the terminal, what programs read is complete."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from testbed.cli import cli
from testbed.errors import ScenarioError

PLANNING = """
import os, re, sys
from pathlib import Path
from testbed.cli import main
try:
    main()
finally:  # of this program alone: what getrusage says is at least what the process had that started it
    used = int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024
    print(os.environ["OPENBLAS_NUM_THREADS"], used, file=sys.__stderr__)
"""
SMALL = """workers: 4
network:
  links: [{from: w0, to: w1, latency: 80ms, rate: 10mbit, jitter: 1ms, loss: 0.1%}]
methods: [allreduce, choco: {compressor: sign}]
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")

    def run(text, *arguments):
        (tmp_path / "s.yaml").write_text(text)
        result = CliRunner().invoke(cli, ["plan", str(tmp_path / "s.yaml"), *arguments], catch_exceptions=False)
        assert result.exit_code == 0
        return result.output

    return run


def test_a_small_plan_shows_everything(run):
    lines = [" ".join(line.split()) for line in run(SMALL).splitlines()]
    assert "s: 4 workers, 4 links, 1 network point, 2 cells" in lines
    assert "w3 198.18.0.14 198.18.0.13" in lines
    assert any(line.startswith("w0 → w1 80ms 10mbit 1ms 0.1%") and line.endswith("packets") for line in lines)
    assert any(line.startswith("w1 → w0 5ms 100mbit") for line in lines)
    assert any(line.startswith("w2 ↔ w3 5ms 100mbit") for line in lines)
    assert "w0 → w1 85ms 10mbit / 100mbit" in lines
    assert "ring: spectral gap 0.6667, fastest exact gossip with γ = 1.0000" in lines
    assert "everyone mixes 1/3 of its own with 1/3 of each neighbour's" in lines
    assert "v0-choco-compressor-sign-r0 choco compressor=sign 1" in lines
    assert any(line.startswith("! direct links are slower than a detour") for line in lines)


@pytest.mark.parametrize("text", ["workers: 200\nnetwork: {topology: torus}", "workers: 40\nnetwork: {topology: star}"])
def test_large_plans_stay_short_and_narrow(run, text):
    text += "\nmethods: [allreduce, dpsgd]\nrepeat: 5\nsweep: {network.link.latency: [1ms, 2ms, 3ms, 4ms]}\n"
    lines = run(text).splitlines()
    assert len(lines) < 80
    assert max(map(len, lines)) <= 100
    assert any("40 = 4 variants × 2 methods × 5 repeats" in line for line in lines)


@pytest.mark.parametrize("topology", ["ring", "star", "{torus: {rows: 32, columns: 32}}"])
def test_a_thousand_workers_fit_in_little_memory(tmp_path, topology):
    (tmp_path / "s.yaml").write_text(f"workers: 1024\nnetwork: {{topology: {topology}}}\nmethods: [dpsgd]\n")
    environment = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    words = [sys.executable, "-c", PLANNING, "plan", str(tmp_path / "s.yaml")]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    threads, megabytes = done.stderr.split()
    assert "1024 workers" in done.stdout
    assert int(megabytes) <= 500
    assert threads == "1"


def test_paths_that_gossip_uses_and_the_longest_other_one(run):
    text = "workers: 8\nnetwork: {links: [{between: [w2, w3], latency: 80ms}]}\nmethods: [dpsgd]\n"

    def paths(shown):
        rows = shown[shown.index("\npaths") : shown.index("\ngossip")].splitlines()
        return [line.split("  ")[1] for line in rows if line.startswith("  w")]

    usual = paths(run(text))
    assert len(usual) == 9
    assert usual[:3] == ["w0 → w1", "w0 → w7", "w1 → w2"]
    assert "the last is the longest of 20 pairs that do not gossip" in run(text)
    every = run(text, "--paths")
    assert len(paths(every)) == 28
    assert "do not gossip" not in every


def test_a_profile(run):
    text = SMALL + "profiles: {small: {workers: 3}}\n"
    assert "s: 4 workers" in run(text)
    assert "s-small: 3 workers, 3 links" in run(text, "--profile", "small")


def test_changing_keys_from_the_command_line(run):
    assert "2 links, 1 network point" in run(SMALL, "--set", "workers=3", "--set", "network.topology=chain")


def test_json_is_complete(run):
    data = json.loads(run(SMALL + "repeat: 2\n", "--json"))
    assert list(data) == ["name", "points", "cells", "variants", "warnings"]
    (point,) = data["points"]
    assert list(point) == ["index", "label", "network", "paths", "gpus", "gossip"]
    link = point["network"]["links"][0]
    assert (link["name"], link["a"], link["b"]) == ("w0-w1", "w0", "w1")
    assert link["ab"] == {
        **{"latency": 0.08, "rate": 10_000_000, "jitter": 0.001, "loss": 0.001},
        **{"buffer": None, "up": True, "limit": None},
    }
    assert (link["limit_ab"], link["limit_ba"]) == (170, 744)  # in flight + one round trip (at least 100) + jitter
    assert point["network"]["workers"][1]["address"] == "198.18.0.6"
    assert set(point["network"]["routes"]) == {"w0", "w1", "w2", "w3"}
    assert point["paths"][0] == {
        **{"source": "w0", "target": "w1", "hops": ["w0", "w1"], "back": ["w1", "w0"]},
        **{"rtt": 0.085, "rate": 10_000_000, "rate_back": 100_000_000},
    }
    assert point["gossip"]["matrices"][0][0] == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3])
    assert point["gossip"]["gamma_opt"] == pytest.approx(1)
    assert [cell["seed"] for cell in data["cells"]] == [1, 1, 2, 2]
    assert data["variants"][0]["training"]["steps"] == 300


def test_time_varying_gossip(run):
    text = "workers: 8\ngossip: one-peer-exponential\nmethods: [dpsgd]\n"
    shown = run(text)
    assert "3 rounds in turn" in shown
    assert "round 2:" in shown
    assert "w0 ← w4 1/2" in shown
    assert json.loads(run(text, "--json"))["points"][0]["gossip"]["gamma_opt"] is None


def test_mistakes_are_scenario_errors(tmp_path):
    (tmp_path / "s.yaml").write_text("workers: 7\nnetwork:\n  topology: torus\nmethods: [dpsgd]\n")
    with pytest.raises(ScenarioError, match=r"s\.yaml:3: 7 workers make no torus"):
        CliRunner().invoke(cli, ["plan", str(tmp_path / "s.yaml")], catch_exceptions=False)
