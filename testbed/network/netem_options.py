"""netem's options as the kernel reads them, in place of pyroute2's encoder.

pyroute2 omits a corruption of 0, though the kernel keeps omitted values, so corruption could never end; it knows no
delay distributions; and it also encodes the rate as an estimator (TCA_RATE), which the kernel refuses with ERANGE.
"""

from __future__ import annotations

from array import array
from typing import Any

from pyroute2.netlink.rtnl import TC_H_ROOT
from pyroute2.netlink.rtnl.tcmsg import plugins, sched_netem
from pyroute2.netlink.rtnl.tcmsg.common import percent2u32

from testbed.link import distributions
from testbed.link.netem import Netem

NETEM = "netem"


class Plugin:
    """The interface that pyroute2 expects of a qdisc."""

    parent = TC_H_ROOT

    class options(sched_netem.options):  # type: ignore[misc]  # noqa: N801 - pyroute2's name
        """Add the attribute that pyroute2 skips."""

        nla_map = tuple(
            (name, "cdata" if name == "TCA_NETEM_DELAY_DIST" else kind) for name, kind in sched_netem.options.nla_map
        )

    @staticmethod
    def get_parameters(request: dict[str, Any]) -> Any:
        found = sched_netem.get_parameters(request)
        attributes = [one for one in found["attrs"] if one[0] != "TCA_NETEM_CORRUPT"]
        corrupt = {"prob_corrupt": percent2u32(request.get("prob_corrupt", 0)), "corr_corrupt": 0}
        attributes.append(["TCA_NETEM_CORRUPT", corrupt])
        if table := request.get("table"):
            attributes.append(["TCA_NETEM_DELAY_DIST", array("h", table).tobytes()])
        return {**found, "attrs": attributes}

    @staticmethod
    def fix_request(request: dict[str, Any]) -> None:
        for name in ("rate", "table"):
            request.pop(name, None)


plugins[NETEM] = Plugin


def arguments(numbers: Netem, *, with_table: bool) -> dict[str, Any]:
    """Return arguments for `tc`. A delay table is sent where delays are not uniform or, `with_table`, were not
    before."""
    shaped = with_table or numbers.distribution != "uniform"
    return {
        "delay": numbers.delay_us,
        "jitter": numbers.jitter_us,
        "rate": numbers.rate,
        "limit": numbers.limit,
        **numbers.percents,
        **({"table": distributions.table(numbers.distribution)} if shaped else {}),
    }
