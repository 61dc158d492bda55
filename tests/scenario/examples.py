"""Scenarios that tests of several modules share."""

DESIGN = """\
name: high-latency-low-bandwidth
workers: 8
network:
  topology: ring
  link: {latency: 5ms, rate: 100mbit, buffer: 50ms}
  links:
    - {between: [w0, w1], latency: 80ms, rate: 10mbit, loss: 0.1%}
    - {from: w2, to: w3, rate: 5mbit}
  events:
    - {at: 30s, link: [w0, w1], rate: 1mbit}
gossip: ring
task: {model: resnet20, data: cifar10, batch: 32, split: {dirichlet: 0.5}}
training: {steps: 500, lr: 0.1, momentum: 0.9, eval_every: 50, target: {accuracy: 0.8}}
compute: real
methods:
  - allreduce
  - dpsgd
  - dcd: {compressor: {quantize: 8bit}}
  - choco: {compressor: sign, gamma: 0.45}
  - powergossip: {rank: 1, iterations: 2}
sweep:
  network.link.latency: [0.13ms, 5ms, 25ms]
  network.link.rate: [1.4gbit, 100mbit, 5mbit]
repeat: 3
seed: 1
"""

# Every key of the schema at least once.
EVERYTHING = """\
name: everything
workers:
  count: 6
  gpus: {w0: 0, w1: [1, 2]}
  cpus: {w0: 2, w1: 0.5}
  memory: 2gb
network:
  topology: {random-regular: {degree: 3, seed: 2}}
  switches: []
  link: {latency: 5ms, rate: unlimited, jitter: 1ms, loss: 0.1%, buffer: 50ms}
  links:
    - {between: [w0, w1], latency: 80ms}
    - {from: w2, to: w3, rate: 5mbit, jitter: 0, loss: 0.01, buffer: 10ms}
  regions: {eu: [w0, w1], us: [w2, w3], asia: [w4, w5]}
  within: {latency: 1ms, rate: 1gbit}
  between:
    latency: {eu: {us: 80ms, asia: 240ms}, us: {asia: 160ms}}
    rate: 100mbit
    jitter: {eu: {us: 1ms}}
    loss: 0.1%
    buffer: 100ms
  routing: hops
  mtu: 9000
  congestion: bbr
  events:
    - {at: 30s, link: [w0, w1], rate: 1mbit, for: 10s}
    - {at: step 100, from: w0, to: w1, latency: 1s}
    - {at: 40s, down: [w0, w1]}
    - {at: 50s, up: [w0, w1]}
    - {at: 60s, flap: [w2, w3], every: 20s, for: 2s, until: 200s}
    - {at: 70s, partition: [[w0, w1], [w2, w3, w4, w5]], for: 5s}
    - {at: 80s, heal: true}
    - {at: 90s, kill: w1}
    - {at: 95s, restart: [w1]}
    - {at: 99s, freeze: w2, for: 5s}
    - {at: 110s, slow: [w3, w4], factor: 3, for: 20s}
    - {random: {kind: freeze, every: 60s, for: 2s, among: [w1, w2], seed: 4}, until: 10min}
gossip: {graph: {erdos-renyi: {p: 0.6, seed: 3}}, weights: metropolis}
task:
  data: cifar10
  model: {resnet20: {width: 32}}
  batch: 64
  split: {shards: 2}
  reshuffle: false
  test_samples: 1000
  augment: true
training:
  steps: 1e3
  lr: 1e-1
  momentum: 0.9
  nesterov: true
  weight_decay: 1e-4
  warmup: 50
  schedule: {milestones: {at: [500, 750], factor: 0.2}}
  eval_every: 100
  target: {loss: 0.3}
compute: {step_time: 60ms}
methods:
  - allreduce
  - choco: {compressor: {topk: 1%}, gamma: 0.4, order: icml}
on_failure: continue
sweep: {training.lr: [0.1, 0.01]}
repeat: 2
seed: 7
runtime: {docker: {image: testbed-worker}}
box: uml
deadline: 90min
"""

SHORT = "workers: 8\nmethods: [allreduce, dpsgd]\n"
