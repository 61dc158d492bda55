"""`testbed bench …`. Imports are inside the commands so that each starts fast."""

from __future__ import annotations

import click

_JSON = click.option("--json", "as_json", is_flag=True, help="Rows for programs.")


@click.group("bench")
def command() -> None:
    """Measure this machine; every figure stands beside its reference."""


@command.command("network")
@click.option("--box", default="auto", type=click.Choice(["auto", "host", "uml"]), help="Where the links live.")
@_JSON
def bench_network(box: str, as_json: bool) -> None:
    """Accuracy of the emulated network on this machine, and how fast it comes and goes.

    With links in this kernel (host), beside Mininet's on the same kernel.
    """
    from testbed.bench.network import run
    from testbed.bench.table import show

    rows = run(box, say=lambda text: click.echo(text, err=True))
    show("emulated network", rows, as_json=as_json)


@command.command("compressors")
@click.option("--size", default=2_730_000, show_default=True, type=click.IntRange(min=1000), help="Parameters, about.")
@_JSON
def bench_compressors(size: int, as_json: bool) -> None:
    """Encode and decode speed of every compressor, beside plain torch and a 1 Gbit/s link."""
    from testbed.bench.compressors import run

    run(size, as_json)


@command.command("transport")
@click.option("--latency", help="On an emulated ring of links with this latency, e.g. 20ms. Default: loopback.")
@click.option("--rate", default="100mbit", show_default=True, help="With --latency: the links' rate.")
@_JSON
def bench_transport(latency: str | None, rate: str, as_json: bool) -> None:
    """Messages and all-reduce between four workers, beside the usual ways, plain sockets and floors."""
    from testbed.bench.table import show
    from testbed.bench.transport import measure, measure_emulated

    if latency is None:
        show("transport, 4 workers on loopback", measure(), as_json=as_json)
    else:
        show(f"transport, 4 workers in a ring, {latency}, {rate}", measure_emulated(latency, rate), as_json=as_json)


@command.command("slow-motion")
@click.option("--box", default="auto", type=click.Choice(["auto", "host", "uml"]), help="Where the links live.")
@click.option("--steps", default=30, show_default=True, type=click.IntRange(min=2), help="Of every cell.")
@click.option("--congestion", help="TCP's congestion control, e.g. reno. Default: this machine's.")
@click.option("--only", multiple=True, metavar="METHOD", help="Only this method; may be given again.")
@_JSON
def bench_slow_motion(box: str, steps: int, congestion: str | None, only: tuple[str, ...], as_json: bool) -> None:
    """The same cells at 1, 2, 4 and 8 times slower: steps, exchanges and links beside those in real time."""
    from testbed.bench.slow_motion import run
    from testbed.bench.table import show

    rows = run(box, steps, congestion, only, say=lambda text: click.echo(text, err=True))
    show("slow motion, 4 workers in a ring", rows, as_json=as_json)


@command.command("report")
@click.option("--workers", default=64, show_default=True, type=click.IntRange(4, 256))
@click.option("--steps", default=1000, show_default=True, type=click.IntRange(min=10))
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(min=1), help="Each adds 20 cells.")
@_JSON
def bench_report(workers: int, steps: int, repeat: int, as_json: bool) -> None:
    """Time, memory and size of the report and the exports of a large run, made up for it."""
    from testbed.bench.report import run
    from testbed.bench.table import show

    rows = run(workers, steps, repeat, say=lambda text: click.echo(text, err=True))
    show(f"report of {workers} workers × {steps} steps × {20 * repeat} cells", rows, as_json=as_json)
