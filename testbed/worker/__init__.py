"""The worker's side: the training loop, transports (Gloo, NCCL, in memory), the trace, checkpoints.

Imports methods, tasks and the network's names. Runtimes start it; results read what it wrote.
"""
