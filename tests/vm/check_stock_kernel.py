"""A machine as people have it: a stock Debian kernel with systemd. Not part of `make test`: `make test-vm` runs it."""

from __future__ import annotations

import json
import re

import pytest

from .vm import ROOT, missing, run_in_vm

pytestmark = [pytest.mark.netem, pytest.mark.slow, pytest.mark.timeout(1200)]

LIMIT = 1100  # seconds; a tenth of it on an idle machine
SCENARIO = """
name: vm
workers: {count: 2, memory: 150mb, cpus: 0.5}
network: {topology: chain, link: {latency: 5ms, rate: 50mbit}}
task: quadratic
training: {steps: 5, eval_every: 5}
compute: {step_time: 20ms}
methods: [dpsgd, toys.py:Hog]  # the second takes more memory than it may
"""
# Each command is followed by its exit code; what is compared is printed between marks.
SCRIPT = f"""
set -u
mkdir -p /run/t && cp tests/toys.py /run/t && cd /run/t && cat >vm.yaml <<'END'
{SCENARIO}
END
testbed={{testbed}}
echo "init: $(cat /proc/1/comm)"
$testbed doctor --json >doctor.json; echo "doctor: $?"
echo "findings: $(tr -d '\\n' <doctor.json)"
$testbed net up vm.yaml --no-calibrate; echo "net up: $?"
$testbed exec w0 -- ping -c 2 -W 20 w1; echo "ping: $?"
$testbed down; echo "down: $?"
systemd-run --wait --collect --pipe --quiet --working-directory=/run/t --setenv=HOME=/root \\
    $testbed up vm.yaml --out run --no-calibrate --no-report; echo "up: $?"
echo "result: $(tr -d '\\n' <run/cells/v0-dpsgd-r0/result.json)"
echo "hog: $(tr -d '\\n' <run/cells/v0-toys.py-hog-r0/result.json)"
echo "groups left: $(find /sys/fs/cgroup -name 'testbed-*' | wc -l)"
"""


def test_a_run_as_a_service_of_systemd() -> None:
    assert not missing(), f"apt-get install {' '.join(missing())}"
    outcome = run_in_vm(SCRIPT.replace("{testbed}", str(ROOT / ".venv/bin/testbed")), LIMIT)
    print(outcome.log)
    assert outcome.code == 0, outcome.log + outcome.console
    said = dict(re.findall(r"^([a-z ]+): (.*)$", outcome.log, re.MULTILINE))
    assert said["init"] == "systemd"
    findings = {one["name"]: one for one in json.loads(said["findings"])["findings"]}
    assert findings["box"]["found"] == "host: this kernel has netem"
    assert "box host: this kernel has netem" in outcome.log
    assert (said["doctor"], said["net up"], said["ping"], said["down"]) == ("0", "0", "0", "0")
    assert said["up"] == "5"  # one of the cells failed, as it should
    result = json.loads(said["result"])
    assert result["error"] is None
    assert result["steps"] == 5
    assert result["shortcomings"] == []  # memory and processors were limited as asked
    assert json.loads(said["hog"])["error"] == "w1 ran out of memory: the scenario allows 150 MB each"
    assert said["groups left"] == "0"
