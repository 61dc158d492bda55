"""The network and the runtime that are currently up. The controller changes them from point to point; cells use
them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from testbed.network.client import Client
from testbed.plan.gpus import Assigned
from testbed.plan.model import NetworkPlan
from testbed.plan.superpackets import CALM, fitting
from testbed.runtime.base import Runtime


@dataclass
class Up:
    """What is currently up."""

    handle: Client
    runtime: Runtime
    network: NetworkPlan  # as its links are now
    gpus: Assigned
    box: str
    congestion: str = ""  # control of TCP in force
    _segments: Mapping[str, int] = field(init=False)  # that workers' packets may have at most: ports are made for them

    def __post_init__(self) -> None:
        self._segments = self._fitting(self.network)

    def serves(self, wanted: NetworkPlan, gpus: Assigned) -> bool:
        """Whether changing links of this network is enough to get the wanted one."""
        if not self.network.same_structure(wanted) or self.gpus != gpus:
            return False
        return all(count <= self._segments[name] for name, count in self._fitting(wanted).items())

    def change(self, wanted: NetworkPlan) -> None:
        """Give the links the properties of the other network's."""
        for now, then in zip(self.network.links, wanted.links, strict=True):
            if (now.ab, now.ba) != (then.ab, then.ba):
                self.handle.set_link(then.name, asdict(then.ab), asdict(then.ba))
        self.network = wanted

    def _fitting(self, network: NetworkPlan) -> dict[str, int]:
        return fitting(network, network.links, CALM[self.box])
