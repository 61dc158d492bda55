"""Options that several commands share."""

from __future__ import annotations

import click

SETS = click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Change a key: --set network.link.rate=10mbit."
)
PROFILE = click.option("--profile", metavar="NAME", help="As this profile of the file has it, e.g. small.")
SLOW_MOTION = click.option(
    "--slow-motion", metavar="FACTOR", help="Real seconds that a second of the scenario lasts: 8, or auto."
)
BOX = click.option(
    "--box", type=click.Choice(["auto", "host", "uml"]), help="Where the links live. Default: what works."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Everything, for programs.")
NETWORK = click.option("--name", help="Which network, where several are up.")


def with_slow_motion(sets: tuple[str, ...], factor: str | None) -> tuple[str, ...]:
    """Return the --set options, with --slow-motion."""
    return sets if factor is None else (*sets, f"slow_motion={factor}")
