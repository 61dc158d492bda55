"""What workers and controller tell each other through one small file."""

import os

from testbed.worker.progress import Progress, Where


def test_nothing_has_begun(tmp_path):
    progress = Progress(tmp_path / "progress", 2, create=True)
    assert progress.all() == [Where(-1, 0, 0, 0.0, 0.0)] * 2
    assert progress.slow(1) == 1.0


def test_what_one_process_writes_another_reads(tmp_path):
    file = tmp_path / "progress"
    watching = Progress(file, 3, create=True)
    watching.set_slow(1, 2.5)
    told = Where(7, 123_456_789_012_345_678, 1 << 40, 1.25, float("inf"))
    child = os.fork()
    if child == 0:
        own = Progress(file, 3)
        own.put(1, told)
        os._exit(0 if own.slow(1) == 2.5 and own.slow(0) == 1.0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert watching.get(1) == told
    assert watching.get(0).step == watching.get(2).step == -1
    assert watching.slow(1) == 2.5  # what a worker writes leaves it alone
