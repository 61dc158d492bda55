"""The worker image of the docker runtime: its context, its wheels, its build. `testbed image build` runs it."""
