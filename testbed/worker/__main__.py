"""`python -m testbed.worker job.json`: one worker in a process of its own. Runtimes start it where they cannot fork.

The result is worker.<rank>.npz in the job's directory; a failure is error.<rank>.json and the exit code of its kind.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from testbed.errors import TestbedError
from testbed.worker.job import Job
from testbed.worker.loop import run_job


def main(path: str) -> int:
    job = Job.from_json(Path(path).read_text())
    try:
        run_job(job)
    except TestbedError as error:
        content = {"kind": type(error).__name__, "message": str(error), "hint": error.hint}
        (Path(job.directory) / f"error.{job.rank}.json").write_text(json.dumps(content))
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # what is still under way on broken connections must not hold up the end
