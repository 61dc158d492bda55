"""Runs a script on a second kernel, which has netem, on this machine's own files: for the host box wherever the kernel
has none. `python -m tests.hostbox.guest WORD…` runs a command there, from the project's directory.

The kernel is Debian's User-Mode Linux, an ordinary process. It sees this machine's root, read-only below an overlay in
memory: whatever the script changes is gone with it. It has one processor, and computes at native speed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INIT = Path(__file__).with_name("init.sh")
TOOLS = {"linux": "user-mode-linux", "insmod": "kmod", "setarch": "util-linux", "unshare": "util-linux"}
MEGABYTES = 5000  # taken only as they are used
OWN = ["PATH", "VIRTUAL_ENV", "LANG", "HYPOTHESIS_PROFILE"]  # of the environment, what a script finds there, too


@dataclass(frozen=True)
class Outcome:
    """How a script ended; None: not by itself, and `console` may tell why."""

    code: int | None
    log: str
    console: str

    def __str__(self) -> str:
        ended = "did not end" if self.code is None else f"exit code {self.code}"
        return f"{ended}\n{self.log}" + (f"\nthe guest's console:\n{self.console}" if self.console else "")


def missing() -> list[str]:
    """Debian packages without which no guest boots."""
    return sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})


def run_in_guest(script: str, timeout: float, files: Path | None = None) -> Outcome:
    """Boot, run the bash script as root in the project's directory, end. `files`: a directory that the script finds as
    $OUT and shares with the host; what it leaves there stays. Nothing else that it does is seen outside."""
    with tempfile.TemporaryDirectory(prefix="tbg") as own:
        out = files or Path(own) / "out"
        out.mkdir(exist_ok=True)
        (out / "job").write_text(_environment(out) + f"cd {shlex.quote(str(ROOT))}\n{script}\n")
        for leftover in ("log", "code"):
            (out / leftover).unlink(missing_ok=True)
        console = _boot(out, Path(own), timeout)
        code, log = _text(out / "code").strip(), _text(out / "log")
        return Outcome(int(code) if code else None, log, console)


def _environment(out: Path) -> str:
    kept = {name: os.environ[name] for name in OWN if name in os.environ}
    kept |= {"OUT": str(out), "HOME": "/tmp", "TMPDIR": "/tmp"}
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in kept.items())


def _boot(out: Path, own: Path, timeout: float) -> str:
    """What the guest's kernel said. Its processes have a namespace of their own and end with its first, which ends with
    us."""
    options = [f"mem={MEGABYTES}M", "rootfstype=hostfs", "rootflags=/", "ro", f"init={INIT}", f"OUT={out}"]
    options += ["con=null", "con0=fd:0,fd:1", "quiet", f"uml_dir={own}/", "umid=u", "random.trust_cpu=on"]
    words = ["setarch", "--addr-no-randomize", "unshare", "--pid", "--fork", "--kill-child=KILL", "linux", *options]
    try:
        done = subprocess.run(
            ["setpriv", "--pdeathsig", "KILL", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=own,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as late:  # which has killed and waited for it
        return f"{(late.stdout or b'').decode(errors='replace')}\nkilled after {timeout:g} s"
    return done.stdout.decode(errors="replace")


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""


def main(words: list[str]) -> int:
    if lacking := missing():
        print(f"no guest can be booted: apt-get install {' '.join(lacking)}", file=sys.stderr)
        return 3
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # with time to clean up
    outcome = run_in_guest(shlex.join(words), timeout=1800)
    print(outcome.log, end="")
    if outcome.code is None:
        print(f"the guest ended before the command did\n{outcome.console}", file=sys.stderr)
        return 4
    return outcome.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
