"""Which training method is fastest on this network, and why?"""

__version__ = "0.1.0"
