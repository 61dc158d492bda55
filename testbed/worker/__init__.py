"""What runs inside a worker: jobs, the training loop, the transport and the trace. Runtimes start it."""
