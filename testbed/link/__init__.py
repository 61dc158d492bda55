"""What a link does to packets (`shape`) and netem's arguments for it (`netem`): queue limits, packet sizes. Pure.

Every package may import it: scenarios describe links, plans carry them, the network builds and measures them.
"""
