"""Scripts that read a run and draw one figure or table each:
`python -m testbed.analysis.loss_vs_time RUN -o figure.pdf`.

Each module has `draw(run) -> Figure` or `table(run) -> DataFrame`, which the HTML report calls, too.
"""
