"""Runs a script below systemd on a stock kernel: Debian's cloud kernel in qemu, on this machine's own files.

The root is this machine's, through virtiofs and below an overlay in memory. Without KVM (qemu's own translation) it is
ten times slower than the machine: it shows that things work, not how fast or how faithfully. `make test-vm` runs it.
"""

from __future__ import annotations

import gzip
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
VIRTIOFSD = Path("/usr/lib/qemu/virtiofsd")
KERNEL = "linux-image-cloud-amd64"  # of Debian
TOOLS = {"qemu-system-x86_64": "qemu-system-x86", "modprobe": "kmod", "busybox": "busybox", "ldd": "libc-bin"}
MEGABYTES = 3000
FIRST_MODULES = ("virtio_pci", "virtiofs", "overlay")  # for the root; all others load themselves
LATER_MODULES = ("kernel/net", "kernel/drivers/net", "kernel/lib", "kernel/crypto")
ENDED = "exit code "


@dataclass(frozen=True)
class Outcome:
    """How a script ended; None: not by itself."""

    code: int | None
    log: str
    console: str


def missing() -> list[str]:
    """Debian packages without which no machine boots."""
    found = {package for tool, package in TOOLS.items() if shutil.which(tool) is None}
    return sorted(found | (set() if VIRTIOFSD.exists() else {"qemu-system-common"}))


def run_in_vm(script: str, timeout: float) -> Outcome:
    """Boot, run the bash script as root and a service of systemd in the project's directory, power off."""
    with tempfile.TemporaryDirectory(prefix="tbv") as name:
        folder = Path(name)
        kernel, modules = _kernel(folder)
        (folder / "job").write_text(f"cd {shlex.quote(str(ROOT))}\n{script}\n")
        _initramfs(folder, modules)
        _boot(folder, kernel, timeout)
        log = _text(folder / "log").replace("\r\n", "\n")
        said, _, code = log.rpartition(ENDED)
        return Outcome(int(code) if code.strip().isdecimal() else None, said, _text(folder / "console"))


def _kernel(folder: Path) -> tuple[Path, Path]:
    """The kernel and the directory of its modules, unpacked and not installed: this machine boots with its own."""
    depends = subprocess.run(["apt-cache", "depends", KERNEL], capture_output=True, text=True, check=True).stdout
    (package,) = [line.split()[-1] for line in depends.splitlines() if "Depends: linux-image" in line]
    (folder / "kernel").mkdir()
    subprocess.run(["apt-get", "-q", "download", package], cwd=folder / "kernel", check=True, capture_output=True)
    (archive,) = (folder / "kernel").glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", archive, folder / "kernel"], check=True)
    (kernel,) = (folder / "kernel" / "boot").glob("vmlinuz-*")
    (modules,) = (folder / "kernel" / "lib" / "modules").iterdir()
    subprocess.run(["depmod", "-b", folder / "kernel", modules.name], check=True)
    return kernel, modules


def _initramfs(folder: Path, modules: Path) -> None:
    """busybox with its libraries, the modules that the root needs, in their order, and those that networks need."""
    tree = folder / "tree"
    for place in ("bin", "dev", "modules"):
        (tree / place).mkdir(parents=True)
    busybox = shutil.which("busybox") or "busybox"
    shutil.copy(busybox, tree / "bin" / "busybox")
    libraries = subprocess.run(["ldd", busybox], capture_output=True, text=True, check=False).stdout  # static: none
    for word in libraries.split():
        if word.startswith("/"):
            target = tree / word.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(word, target)
    command = ["modprobe", "-d", str(folder / "kernel"), "-S", modules.name, "--show-depends", "-a", *FIRST_MODULES]
    needed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    files = dict.fromkeys(line.split()[1] for line in needed.splitlines() if line.startswith("insmod"))
    for number, file in enumerate(files):
        shutil.copy(file, tree / "modules" / f"{number:02}.ko")
    later = tree / "lib" / "modules" / modules.name
    for place in LATER_MODULES:
        shutil.copytree(modules / place, later / place)
    for index in modules.glob("modules.*"):
        shutil.copy(index, later)
    for file in (HERE / "init.sh", HERE / "job.service", folder / "job"):
        shutil.copy(file, tree / file.name)
    (tree / "init.sh").rename(tree / "init").chmod(0o755)
    names = "\0".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    packed = subprocess.run(
        ["busybox", "cpio", "-0", "-o", "-H", "newc"], input=names.encode(), cwd=tree, capture_output=True, check=True
    )
    (folder / "initramfs").write_bytes(gzip.compress(packed.stdout, 1))


def _boot(folder: Path, kernel: Path, timeout: float) -> None:
    """Until it powers off. Both programs end with us."""
    tied = ["setpriv", "--pdeathsig", "KILL"]
    socket = folder / "fs"
    options = ["source=/", "cache=always", "sandbox=chroot"]
    share = [str(VIRTIOFSD), f"--socket-path={socket}", *(word for one in options for word in ("-o", one))]
    machine = ["qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max", "-smp", "2", "-m", f"{MEGABYTES}M"]
    machine += ["-object", f"memory-backend-memfd,id=memory,size={MEGABYTES}M,share=on", "-numa", "node,memdev=memory"]
    machine += ["-chardev", f"socket,id=root,path={socket}", "-device", "vhost-user-fs-pci,chardev=root,tag=root"]
    machine += ["-kernel", str(kernel), "-initrd", str(folder / "initramfs"), "-nodefaults", "-display", "none"]
    machine += ["-no-reboot", "-serial", f"file:{folder / 'console'}", "-serial", f"file:{folder / 'log'}"]
    machine += ["-append", "console=ttyS0 quiet panic=1 random.trust_cpu=on"]
    with (folder / "share.log").open("wb") as log:
        sharing = subprocess.Popen([*tied, *share], stderr=log)
        try:
            while not socket.exists():
                assert sharing.poll() is None, (folder / "share.log").read_text()
            subprocess.run([*tied, *machine], timeout=timeout, check=True)
        except subprocess.TimeoutExpired:
            pass  # the outcome has no exit code then
        finally:
            sharing.kill()
            sharing.wait()


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""
