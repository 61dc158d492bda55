"""What workers and controller tell each other through two small files, and what a hostile worker makes of its own."""

import os
import struct
from time import monotonic_ns

from testbed.worker.progress import Answer, Board, Onlooker, Progress, Where


def files(tmp_path):
    return tmp_path / "progress", tmp_path / "orders"


def test_nothing_has_begun(tmp_path):
    board = Board(*files(tmp_path), 2)
    assert board.all() == [Where(-1, 0, 0, 0.0, 0.0)] * 2
    assert board.slow(1) == 1.0


def test_what_one_process_writes_another_reads(tmp_path):
    watching = Board(*files(tmp_path), 3)
    watching.set_slow(1, 2.5)
    told = Where(7, monotonic_ns(), 1 << 40, 1.25, float("inf"))
    child = os.fork()
    if child == 0:
        own = Progress(*files(tmp_path), 3)
        own.put(1, told)
        os._exit(0 if own.slow(1) == 2.5 and own.slow(0) == 1.0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert watching.get(1) == told
    assert Onlooker(tmp_path / "progress").get(1) == told
    assert watching.get(0).step == watching.get(2).step == -1
    assert watching.slow(1) == 2.5  # what a worker writes leaves it alone


def test_records_that_a_worker_has_cut_short_are_blank(tmp_path):
    board, onlooker = Board(*files(tmp_path), 2), Onlooker(tmp_path / "progress")
    Progress(*files(tmp_path), 2).put(1, Where(3, 1, 1, 1.0, 1.0))
    os.truncate(tmp_path / "progress", 130)
    assert board.get(1) == onlooker.get(1) == Where(-1, 0, 0, 0.0, 0.0)
    assert board.answer(1).ready == 0
    os.truncate(tmp_path / "progress", 0)
    assert [where.step for where in board.all()] == [-1, -1]


def test_records_that_a_worker_has_replaced_are_not_read(tmp_path):
    board = Board(*files(tmp_path), 1)
    (tmp_path / "progress").unlink()
    os.mkfifo(tmp_path / "progress")
    assert board.get(0).step == -1


def test_numbers_that_cannot_be_are_not_believed(tmp_path):
    board = Board(*files(tmp_path), 1)
    with (tmp_path / "progress").open("r+b") as file:
        file.write(struct.pack("=qqqdd", -99, 1 << 62, -5, float("nan"), float("nan")))
    where = board.get(0)
    assert (where.step, where.start_ns, where.bytes_sent, where.seconds) == (-1, 0, 0, 0.0)


def test_answers_that_cannot_be_are_not_believed(tmp_path):
    board = Board(*files(tmp_path), 1)
    for told, believed in ((-(1 << 63), 0), ((1 << 63) - 1, 1 << 62), (7, 7)):
        Progress(*files(tmp_path), 1).put_answer(0, Answer(nbytes=told))
        assert board.answer(0).nbytes == believed


def test_a_link_where_the_records_shall_be_is_not_followed(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "progress").symlink_to(tmp_path / "victim")
    Board(*files(tmp_path), 1)
    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "progress").is_symlink()
