"""Reports for people: the HTML page, links in words, CSV, Perfetto traces.

Reads run directories through `results`. Only benchmarks and commands import it.
"""
