"""Signals as one exception, in real processes."""

import os
import signal
import subprocess
import sys
import time

import pytest

from testbed.interrupts import SIGNALS, Interrupted, check, interruptible
from testbed.network.client import uninterrupted


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_raise_and_carry_their_exit_code(number, code):
    before = [signal.getsignal(one) for one in SIGNALS]
    with pytest.raises(Interrupted) as raised, interruptible():
        os.kill(os.getpid(), number)
    assert raised.value.exit_code == code
    assert [signal.getsignal(one) for one in SIGNALS] == before


def test_what_was_ignored_stays_ignored():
    script = "from testbed.interrupts import interruptible; import os, signal\n"
    script += "with interruptible(): os.kill(os.getpid(), signal.SIGHUP); print('lives')"
    done = subprocess.run(["nohup", sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "lives"


def test_clean_up_is_finished_first():
    done = []

    def clean_up() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            done.append("clean")

    with pytest.raises(Interrupted), interruptible():
        clean_up()
    assert done == ["clean"]


def test_failures_are_not_mistaken_for_it():
    def careless() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except Exception:  # noqa: BLE001  # what the test is about
            pytest.fail("a handler of failures took it")

    with pytest.raises(Interrupted), interruptible():
        careless()


def test_what_somebody_took_for_another_failure_comes_again_where_it_is_looked_for():
    def greedy() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except BaseException:  # noqa: BLE001  # what the test is about
            check()

    with interruptible():
        check()
    with pytest.raises(Interrupted) as raised, interruptible():
        greedy()
    assert raised.value.exit_code == 143
    with interruptible():
        check()


def test_it_is_not_lost_where_python_drops_exceptions(capsys):
    class Closing:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    def drop_one() -> None:
        Closing()
        end = time.monotonic() + 20
        while time.monotonic() < end:
            time.sleep(0.01)

    with pytest.raises(Interrupted) as raised, interruptible():
        drop_one()
    assert raised.value.exit_code == 130
    assert capsys.readouterr().err == ""


def test_ctrl_c_during_an_import_waits_for_its_end(tmp_path):
    """Inside an import it would get lost, or come out as an error of the module."""
    (tmp_path / "slow.py").write_text(
        "import os, signal, time\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT); time.sleep(0.2)\n"
        "except BaseException as error:\n    raise ImportError('broken') from error\n"
        "print('whole')\n"
    )
    script = "from testbed.interrupts import patient; patient(); import time\n"
    script += "try:\n    import slow; time.sleep(5)\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["whole", "interrupted"]
