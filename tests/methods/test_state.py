"""What workers remember: replicas stay equal, a pending exchange is completed, a checkpoint goes on bit for bit."""

from __future__ import annotations

import pytest
import torch

from testbed.compressors import make as compressor
from testbed.flat import Layout
from testbed.methods import checkpoint, make
from testbed.methods.powergossip import PowerGossip

from .harness import Cluster, metropolis, one_peer, ring, spread
from .quadratic import Quadratic

LAYOUT = Layout.of({"a": (9, 7), "b": (9,), "c": (5, 4, 3), "d": (9, 7), "e": (9,), "f": (9, 7), "g": (3, 3)}.items())
GRAPH = metropolis("kite", 6, [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (4, 5), (1, 3)])
OVERLAPPING = [
    "dpsgd",
    {"naive": {"compressor": {"quantize": "4bit"}}},
    {"dcd": {"compressor": {"quantize": "4bit"}}},
    {"ecd": {"compressor": {"quantize": "8bit"}}},
    {"choco": {"compressor": {"topk": "10%"}, "gamma": 0.3}},
    {"powergossip": {"rank": 2, "iterations": 3}},
]
OTHERS = [
    {"dpsgd": {"order": "B"}},
    {"choco": {"compressor": {"lowrank": 1}, "gamma": 0.1, "order": "icml"}},
    {"deepsqueeze": {"compressor": "sign", "gamma": 0.05}},
    {"powergossip": {"warm_start": False}},
    "allreduce",
    {"allreduce": {"compressor": {"quantize": "8bit"}}},
    "ring",
    "ef_sign",
]


def cluster(spec, gossip=GRAPH, x0=None):
    problem = Quadratic.of(gossip.size, LAYOUT.numel, noise=0.5)
    x0 = torch.ones(LAYOUT.numel) if x0 is None else x0
    return Cluster(make(spec), gossip, x0, problem.direction, lr=0.1, layout=LAYOUT)


def set_option(spec, **options):
    return {spec: options} if isinstance(spec, str) else {name: {**given, **options} for name, given in spec.items()}


@pytest.mark.parametrize("spec", OVERLAPPING, ids=str)
def test_overlap_changes_nothing_but_time(spec):
    on, off = cluster(set_option(spec, overlap=True)), cluster(set_option(spec, overlap=False))
    on.run(12)
    off.run(12)
    assert torch.equal(torch.stack(on.history), torch.stack(off.history))
    assert (on.method.overlaps, off.method.overlaps) == (True, False)
    events = [event for event in on.peers[0].events if event in ("send", "gradient", "receive")]
    serial = [event for event in off.peers[0].events if event in ("send", "gradient", "receive")]
    first = events.index("receive")
    assert events[:first].count("send") > 0
    assert events[first - 1] == "gradient"  # computed while the message was under way
    assert serial[serial.index("send") + 1] == "receive"


@pytest.mark.parametrize("spec", OVERLAPPING + OTHERS, ids=str)
def test_runs_are_repeatable(spec):
    assert torch.equal(cluster(spec).run(5), cluster(spec).run(5))


@pytest.mark.parametrize("spec", OVERLAPPING + OTHERS, ids=str)
def test_a_checkpoint_goes_on_bit_for_bit(spec):
    whole = cluster(spec)
    whole.run(11)
    first = cluster(spec)
    first.run(6)  # which finishes what is under way, as the worker does before a checkpoint
    second = cluster(spec)
    for old, new, mine, theirs in zip(first.peers, second.peers, second.states, first.states, strict=True):
        saved = checkpoint.save(theirs)
        for wrecked in (theirs, old):
            del wrecked
        checkpoint.load(mine, saved)
        new.x.copy_(old.x)
        new.step = old.step
    assert torch.equal(second.run(5), whole.X)


def test_a_checkpoint_is_a_copy_without_scratch():
    state = cluster({"dcd": {}}).states[0]
    saved = checkpoint.save(state)
    assert set(saved) == {"stream", "replicas", "pending"}
    before = saved["replicas"]["1"].clone()
    state.replicas[1].add_(1)
    assert torch.equal(saved["replicas"]["1"], before)


@pytest.mark.parametrize("spec", ["sign", {"quantize": "4bit"}, {"topk": "5%"}, {"lowrank": 1}], ids=str)
def test_replicas_equal_the_owners(spec):
    """T10, bit for bit."""
    dcd, ecd = cluster({"dcd": {"compressor": spec}}), cluster({"ecd": {"compressor": spec}})
    dcd.run(9)
    ecd.run(5)
    for i in range(GRAPH.size):
        for j in GRAPH.sources(0, i):
            assert torch.equal(dcd.states[i].replicas[j], dcd.peers[j].x)
            assert torch.equal(ecd.states[i].estimates[j], ecd.states[j].own)


def test_replicas_lag_until_finished():
    dcd = cluster("dcd")
    dcd.run(3, finish=False)
    assert all(state.pending for state in dcd.states)
    assert not torch.equal(dcd.states[0].replicas[1], dcd.peers[1].x)
    for peer, state in zip(dcd.peers, dcd.states, strict=True):
        dcd.method.finish(peer, state)  # needs nobody else: the messages were sent
        dcd.method.finish(peer, state)  # nothing left to do
    assert torch.equal(dcd.states[0].replicas[1], dcd.peers[1].x)


@pytest.mark.parametrize("order", ["iclr", "icml"])
def test_choco_sums_what_the_neighbours_publish(order):
    """s_i = Σ w_ij x̂_j, which no worker can check by itself."""
    choco = cluster({"choco": {"compressor": {"topk": "10%"}, "gamma": 0.2, "order": order}})
    choco.run(200)
    hats = torch.stack([state.hat for state in choco.states]).double()
    expected = torch.from_numpy(GRAPH.matrix(0)) @ hats
    s = torch.stack([state.hat + state.gap for state in choco.states]).double()
    assert (s - expected).abs().max() < 2e-6 * hats.abs().max()


@pytest.mark.parametrize("options", [{"rank": 1}, {"rank": 3}, {"rank": 2, "warm_start": False}], ids=str)
def test_both_ends_of_an_edge_agree(options):
    """T10: p and q, bit for bit, though the two ends have different numbers of neighbours."""
    power = cluster({"powergossip": options})
    power.run(9)
    for i in range(GRAPH.size):
        for j, edge in power.states[i].edges.items():
            other = power.states[j].edges[i]
            assert torch.equal(edge.p, other.p)
            assert torch.equal(edge.q, other.q)


@pytest.mark.parametrize("rank", [1, 3])
def test_powergossip_survives_equal_models(rank):
    """T14: three rounds without any difference, then one: it must still be mixed away."""
    method = PowerGossip(rank=rank)
    power = Cluster(method, ring(4), torch.ones(LAYOUT.numel), layout=LAYOUT)
    assert torch.equal(power.run(3), torch.ones(4, LAYOUT.numel))
    for rank_, peer in enumerate(power.peers):
        peer.x += torch.randn(LAYOUT.numel, generator=torch.Generator().manual_seed(rank_))
    before = spread(power.X)
    power.run(60)
    assert spread(power.X) < 0.05 * before
    for slot in LAYOUT.slots:  # in every tensor, not only in some
        assert spread(power.X[:, slot.start : slot.stop]) < 0.2 * before * slot.numel / LAYOUT.numel


def test_powergossip_message_sizes():
    """One message per edge and iteration, odd and even ones of their own length, vectors in the first alone."""
    power = cluster({"powergossip": {"rank": 1, "iterations": 2}}, ring(4))
    power.run(1)
    rows, columns = 9 + 5 + 9 + 9 + 3, 7 + 12 + 7 + 7 + 3
    assert power.world.sent == [2 * 4 * (rows + columns + 9 + 9)] * 4


def test_a_message_of_compressed_gossip_is_as_long_as_its_codec_says():
    for name in ("naive", "dcd", "ecd", "choco", "deepsqueeze"):
        options = {"compressor": "sign", **({"gamma": 0.1} if name in ("choco", "deepsqueeze") else {})}
        run = cluster({name: options}, ring(4))
        run.run(3)
        assert run.world.sent == [3 * 2 * compressor("sign").bind(LAYOUT, 0).nbytes] * 4


@pytest.mark.parametrize("spec", ["dpsgd", {"naive": {}}, {"deepsqueeze": {"gamma": 0.1}}], ids=str)
def test_changing_graphs_resume_at_the_right_round(spec):
    whole, first, second = (cluster(spec, one_peer(8)) for _ in range(3))
    whole.run(9)
    first.run(5)
    for old, new, mine, theirs in zip(first.peers, second.peers, second.states, first.states, strict=True):
        checkpoint.load(mine, checkpoint.save(theirs))
        new.x.copy_(old.x)
        new.step = old.step
    assert torch.equal(second.run(4), whole.X)
