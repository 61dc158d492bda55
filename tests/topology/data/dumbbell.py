"""A Mininet topology as users write it: two switches, a bottleneck between them, hosts on both sides."""

from mininet.link import TCLink
from mininet.topo import Topo


class Dumbbell(Topo):
    def build(self, n=2):
        left, right = self.addSwitch("s1"), self.addSwitch("s2")
        self.addLink(left, right, cls=TCLink, bw=10, delay="20ms", jitter="1ms", loss=1, max_queue_size=50)
        for i in range(1, n + 1):
            self.addLink(self.addHost(f"h{i}"), left, bw=100, delay="500us")
            self.addLink(self.addHost(f"h{n + i}"), right, bw=100, delay="500us")


class Uneven(Topo):
    """Old style: options per end, a link without options, one that cannot be honoured."""

    def __init__(self):
        Topo.__init__(self)
        a, b, c = self.addHost("a"), self.addHost("b"), self.addHost("c")
        self.addLink(a, b, params1={"bw": 2, "delay": "30ms"}, params2={"bw": 20, "delay": 10})
        self.addLink(b, c, use_tbf=True)


class Wrong(Topo):
    def build(self):
        self.addLink(self.addHost("h1"), self.addHost("h2"), bw=10, delay="5 parsecs")


class Raises(Topo):
    def build(self):
        raise RuntimeError("no such building")


topos = {"pair": lambda: Dumbbell(n=1)}
