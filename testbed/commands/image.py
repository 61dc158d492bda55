"""`testbed image`: the worker image of the docker runtime."""

from __future__ import annotations

import click


@click.group("image")
def command() -> None:
    """Images for the docker runtime; without one it runs this machine's own Python (image: host)."""


@command.command()
@click.option("--cuda", is_flag=True, help="With torch's CUDA build, for workers on GPUs.")
@click.option("--base", metavar="IMAGE", help="What to build on: any image with this Python, venv and glibc.")
@click.option("--tag", metavar="NAME", help="What to call it. Default: testbed/worker:VERSION.")
def build(cuda: bool, base: str | None, tag: str | None) -> None:
    """Build the worker image: this testbed with the torch and NumPy that are in use here.

    Wheels are fetched with this machine's own pip settings and kept in the user's cache; the build itself needs no
    network, except to pull a base image that is not here yet.
    """
    from testbed.runtime import engine
    from testbed.runtime.image.build import BASE
    from testbed.runtime.image.build import build as make

    client = engine.connect()
    try:
        with engine.speaking("build the image"):
            made = make(client, cuda=cuda, base=base or BASE, tag=tag, say=lambda text: click.echo(text, err=True))
    finally:
        client.close()
    click.echo(f"{made.tag}, {made.size / 1e9:.2f} GB; in a scenario:")
    click.echo(f"runtime: {{docker: {{image: '{made.tag}'}}}}")
