"""Makes mobile-a.csv and mobile-b.csv, the links of mobile-trace.yaml: python scenarios/mobile_trace.py

The logarithm of the rate is a first-order autoregressive process around 6 Mbit/s, one row a second, kept within 0.5 and
30 Mbit/s; latency rises as the rate falls. About once in 40 seconds a handover: 200 kbit/s and 150 ms for a second.
Two minutes; the last row stays to the end. The same seed gives the same files.
"""

from math import exp, log
from pathlib import Path
from random import Random

SECONDS = 120
USUAL, LEAST, MOST = 6.0, 0.5, 30.0  # Mbit/s
MEMORY, SHAKE = 0.9, 0.35  # of the logarithm, from one second to the next


def rows(seed: int) -> list[str]:
    draw = Random(seed)
    made = ["time,rate,latency,loss"]
    level = 0.0
    for second in range(SECONDS):
        level = MEMORY * level + draw.gauss(0.0, SHAKE)
        rate = min(MOST, max(LEAST, USUAL * exp(level)))
        latency = 15 + 25 * max(0.0, log(USUAL / rate))
        if 0 < second < SECONDS - 1 and draw.random() < 1 / 40:
            rate, latency = 0.2, 150.0
        made.append(f"{second}s,{round(1000 * rate)}kbit,{latency:.0f}ms,0%")
    return made


if __name__ == "__main__":
    for name, seed in (("a", 1), ("b", 2)):
        Path(__file__).with_name(f"mobile-{name}.csv").write_text("\n".join(rows(seed)) + "\n")
