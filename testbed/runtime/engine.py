"""The Docker engine: found as the docker command finds it, refused where containers could not get the network.

The docker runtime connects to it, `testbed doctor` shows it, `testbed down --all` removes what runs left in it.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from testbed.errors import MissingError
from testbed.network.state import alive, base
from testbed.runtime.checks import Finding

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

DEFAULT = "unix:///var/run/docker.sock"
FOLDER = ".workers"  # of a run's sockets, beside the networks' directories; no network is called like that
ANSWER_SECONDS = 60.0
LOOK_SECONDS = 5.0  # for `testbed doctor`, which does not wait for an engine that is stuck
_INSTALL = "install Docker (on Debian: apt-get install docker.io), or use --runtime process"


def address(environment: Mapping[str, str] = os.environ) -> str:
    """Return DOCKER_HOST, else the context of DOCKER_CONTEXT or `docker context use`, else the usual socket."""
    if told := environment.get("DOCKER_HOST"):
        return told
    name = environment.get("DOCKER_CONTEXT")
    if not name and not os.path.isfile(_config(environment)):  # nor where it may not be read
        return DEFAULT
    from docker.context import ContextAPI

    found = ContextAPI.get_context(name)
    if found is None:
        raise MissingError(f"there is no Docker context named {name}", hint="docker context ls shows what there is")
    host: str = found.Host
    return host.removeprefix("http+")


def connect(seconds: float = ANSWER_SECONDS) -> DockerClient:
    """Return a client of a usable engine; MissingError says why there is none."""
    where = address()
    path = _local(where)
    _greet(path, where)
    import docker
    from docker.errors import DockerException

    try:
        client = docker.DockerClient(base_url=where, timeout=seconds)
        client.ping()
        _judge(client.info(), os.uname().release)
    except (DockerException, OSError) as error:
        raise MissingError(
            f"the Docker engine at {where} does not answer: {_first_line(error)}",
            hint="see whether it runs: systemctl status docker",
        ) from error
    return client


def _local(where: str) -> str:
    """Return the path of an engine's socket; refuse an engine on another machine."""
    try:
        parts = urlsplit(where)
    except ValueError as error:
        raise MissingError(f"{where} is no address of a Docker engine", hint=f"such as {DEFAULT}") from error
    if parts.scheme != "unix":
        raise MissingError(
            f"the Docker engine at {where} may be on another machine, whose containers cannot be plugged in here",
            hint="use one on this machine: unset DOCKER_HOST, docker context use default",
        )
    return parts.path or parts.netloc


def _greet(path: str, where: str) -> None:
    """Connect once: check that it is there, that we may use it, and that we see its processes."""
    try:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(LOOK_SECONDS)
            peer.connect(path)
            pid, _, _ = struct.unpack("=iii", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except FileNotFoundError as error:
        raise MissingError(f"there is no Docker engine at {where}", hint=_INSTALL) from error
    except PermissionError as error:
        raise MissingError(f"the Docker engine at {where} may not be used by this user", hint="run as root") from error
    except OSError as error:
        raise MissingError(
            f"the Docker engine at {where} does not run: {error.strerror or error}",
            hint="start it: sudo systemctl start docker",
        ) from error
    if pid == 0:
        raise MissingError(
            f"the Docker engine at {where} runs outside of this container: its processes cannot be seen from here",
            hint="run testbed beside the engine, or start an engine in here",
        )


def _judge(info: Mapping[str, Any], kernel: str) -> None:
    """Refuse an engine not on this kernel or not run by root: containers get cables from this kernel, as root."""
    if info["KernelVersion"] != kernel:
        raise MissingError(
            f"the Docker engine {info['ServerVersion']} runs on another kernel ({info['KernelVersion']}): "
            "a virtual or a remote machine",
            hint="run testbed in there, or use an engine on this machine (see DOCKER_HOST)",
        )
    if any("rootless" in option for option in info.get("SecurityOptions") or ()):
        raise MissingError(
            "the Docker engine runs without root, so that its containers' users are not this machine's",
            hint="use the system's engine: unset DOCKER_HOST, docker context use default",
        )


def check() -> None:
    """Check, before anything is started, that containers can run and be attached."""
    if os.geteuid() != 0:
        raise MissingError(
            "the docker runtime needs root: containers get their network from outside",
            hint="run it with sudo; --runtime process needs no root",
        )
    connect().close()


def finding() -> Finding:
    """Return the finding for `testbed doctor`."""
    name, needed_for = "Docker engine", "runtime: docker"
    try:
        client = connect(LOOK_SECONDS)
    except MissingError as error:
        absent = isinstance(error.__cause__, FileNotFoundError)  # else it is there, and of no use
        return Finding(name, None if absent else False, str(error), error.hint or "", needed_for)
    try:
        version = client.version()["Version"]
    finally:
        client.close()
    return Finding(name, True, f"{version} at {address()}", "", needed_for)


@contextmanager
def speaking(what: str, hint: str | None = None) -> Iterator[None]:
    """Turn what the engine refuses inside into one clear error."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        yield
    except (DockerException, RequestException, OSError) as error:
        raise MissingError(
            f"the Docker engine could not {what}: {_first_line(error)}",
            hint=hint or "its log says more: journalctl -u docker",
        ) from error


def leftovers(client: DockerClient) -> list[Container]:
    """Return containers whose controller is gone. Those of others, and of active runs, are not touched."""
    from testbed.runtime.container_spec import CONTROLLER

    found = client.containers.list(all=True, filters={"label": CONTROLLER}, ignore_removed=True)
    return [one for one in found if not alive(one.labels[CONTROLLER])]


def remove_leftovers() -> list[str]:
    """Remove leftovers for `testbed down --all`; return the names of the removed containers. MissingError where killed
    runs may have left containers and no engine answers; without such runs none is needed."""
    try:
        client = connect(LOOK_SECONDS)
    except MissingError as error:
        if not orphaned_folders():
            return []
        raise MissingError(
            f"a run was killed whose containers may be left, but {error}",
            hint="once the engine runs, testbed down --all removes them",
        ) from error
    try:
        with speaking("remove what earlier runs left"):
            left = leftovers(client)
            for container in left:
                container.remove(force=True, v=True)
        remove_folders()
        return [str(container.name) for container in left]
    finally:
        client.close()


def remove_folders() -> None:
    """Remove the socket directories of killed runs whose containers are gone."""
    for folder in orphaned_folders():
        shutil.rmtree(folder, ignore_errors=True)


def orphaned_folders() -> list[Path]:
    """Return the socket directories of killed runs: each may have left containers."""
    return [folder for folder in base().glob(f"*{FOLDER}") if not alive(folder.name.removesuffix(FOLDER))]


def _config(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"


def _first_line(error: BaseException) -> str:
    said = getattr(error, "explanation", None) or str(error)  # the engine's own words, without the request's address
    return (said.splitlines() or [type(error).__name__])[0]
