"""Kernel settings in routers and workers, all chosen by us: a new namespace inherits many from the host, and a
container's may have been set by its engine.

Standard library only: the agent runs this inside the delay box, too.
"""

from __future__ import annotations

import errno

from testbed.network.namespaces import write_sysctl

# Setting, in routers, in workers (None: left alone there), why. In this order: ip_forward resets some of the others.
# `conf.*` is both `conf.all` and `conf.default`: interfaces that come later have the default, and which of all's and
# its own value counts, or the larger of them, differs.
TABLE: tuple[tuple[str, str | None, str | None, str], ...] = (
    ("net.ipv6.conf.*.disable_ipv6", "1", "1", "its chatter would be on the links, too"),
    ("net.ipv4.ip_forward", "1", "0", "routers pass packets on; no worker is another one's way"),
    ("net.ipv4.conf.default.forwarding", "1", "0", "likewise, whatever ip_forward was before"),
    ("net.ipv4.conf.*.rp_filter", "0", "0", "the way back may be another way; a filter would drop what comes by it"),
    ("net.ipv4.conf.*.accept_redirects", "0", "0", "routes are those of the plan"),
    ("net.ipv4.conf.*.secure_redirects", "0", "0", "likewise"),
    ("net.ipv4.conf.*.send_redirects", "0", "0", "likewise, and they would be traffic that nobody asked for"),
    ("net.ipv4.conf.*.accept_source_route", "0", "0", "routes are those of the plan"),
    (
        "net.ipv4.conf.*.ignore_routes_with_linkdown",
        "0",
        "0",
        "a link that is down drops packets; no other way is taken",
    ),
    ("net.ipv4.conf.*.log_martians", "0", "0", "the kernel's log is the host's"),
    ("net.ipv4.conf.*.arp_ignore", "0", "0", "an address is answered for as usual"),
    ("net.ipv4.conf.*.arp_announce", "0", "0", "likewise"),
    ("net.ipv4.conf.*.arp_filter", "0", "0", "likewise"),
    ("net.ipv4.conf.*.arp_accept", "0", "0", "neighbours are those of the plan"),
    ("net.ipv4.conf.*.arp_notify", "0", "0", "packets that nobody asked for"),
    ("net.ipv4.conf.*.proxy_arp", "0", "0", "nobody answers for others"),
    ("net.ipv4.ip_default_ttl", "255", "255", "the longest way may have more hops than the usual 64"),
    ("net.ipv4.ip_no_pmtu_disc", None, "0", "the path's packet size is found as usual"),
    ("net.ipv4.ip_local_port_range", None, "32768 60999", "enough for connections to everybody"),
    ("net.ipv4.ip_local_reserved_ports", None, "", "likewise"),
    ("net.ipv4.icmp_echo_ignore_all", "0", "0", "ping answers"),
    ("net.core.somaxconn", None, "4096", "all others may connect at once"),
    # TCP, as the kernel has it unless the reason says otherwise: machines must not differ in it.
    ("net.ipv4.tcp_slow_start_after_idle", None, "0", "training is bursty (the kernel's default is 1)"),
    ("net.ipv4.tcp_no_metrics_save", None, "1", "runs must not influence each other (the kernel's default is 0)"),
    ("net.ipv4.tcp_sack", None, "1", "what is sent again after a loss"),
    ("net.ipv4.tcp_dsack", None, "1", "likewise"),
    ("net.ipv4.tcp_early_retrans", None, "3", "when it is sent again"),
    ("net.ipv4.tcp_recovery", None, "1", "likewise"),
    ("net.ipv4.tcp_frto", None, "2", "likewise"),
    ("net.ipv4.tcp_reordering", None, "3", "what counts as lost"),
    ("net.ipv4.tcp_max_reordering", None, "300", "likewise"),
    ("net.ipv4.tcp_thin_linear_timeouts", None, "0", "how long it waits before it sends again"),
    ("net.ipv4.tcp_rto_min_us", None, "200000", "likewise"),
    ("net.ipv4.tcp_rto_max_ms", None, "120000", "likewise"),
    ("net.ipv4.tcp_retries2", None, "15", "how long a connection lives over a link that is down"),
    ("net.ipv4.tcp_syn_retries", None, "6", "how long one is tried for"),
    ("net.ipv4.tcp_synack_retries", None, "5", "likewise"),
    ("net.ipv4.tcp_timestamps", None, "1", "the headers that the goodput is reckoned with"),
    ("net.ipv4.tcp_window_scaling", None, "1", "windows beyond 64 kB, which long links need"),
    ("net.ipv4.tcp_moderate_rcvbuf", None, "1", "buffers that grow with what is under way"),
    ("net.ipv4.tcp_shrink_window", None, "0", "and keep what they promised"),
    ("net.ipv4.tcp_notsent_lowat", None, "4294967295", "no limit of what waits to be sent"),
    ("net.ipv4.tcp_ecn", None, "2", "congestion is told by loss unless a program asks otherwise"),
    ("net.ipv4.tcp_fastopen", None, "1", "for clients that ask for it"),
    ("net.ipv4.tcp_mtu_probing", None, "0", "packets are as large as the MTU allows"),
    ("net.ipv4.tcp_plb_enabled", None, "0", "there is one way"),
    ("net.ipv4.tcp_autocorking", None, "1", "how small writes become packets"),
    ("net.ipv4.tcp_limit_output_bytes", None, "4194304", "how much may queue below TCP"),
    ("net.ipv4.tcp_min_tso_segs", None, "2", "how large its super-packets are"),
    ("net.ipv4.tcp_tso_win_divisor", None, "3", "likewise"),
    ("net.ipv4.tcp_tso_rtt_log", None, "9", "likewise"),
    ("net.ipv4.tcp_pacing_ss_ratio", None, "200", "how fast they follow each other"),
    ("net.ipv4.tcp_pacing_ca_ratio", None, "120", "likewise"),
    ("net.ipv4.tcp_comp_sack_delay_ns", None, "1000000", "how often losses are told"),
    ("net.ipv4.tcp_comp_sack_slack_ns", None, "100000", "likewise"),
    ("net.ipv4.tcp_comp_sack_nr", None, "44", "likewise"),
    ("net.ipv4.tcp_pingpong_thresh", None, "1", "when acknowledgements wait"),
    ("net.ipv4.tcp_min_rtt_wlen", None, "300", "how long BBR and others believe in the shortest round trip"),
)


def _column(number: int) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for row in TABLE:
        value = row[number]
        if value is not None:
            chosen |= dict.fromkeys([row[0].replace("*", which) for which in ("all", "default")], value)
    return chosen


ROUTER, WORKER = _column(1), _column(2)
STRETCHED = (  # times that the kernel lets us choose
    "net.ipv4.tcp_rto_min_us",
    "net.ipv4.tcp_comp_sack_delay_ns",
    "net.ipv4.tcp_comp_sack_slack_ns",
    "net.ipv4.tcp_min_rtt_wlen",
)


def in_workers(slow_motion: float = 1.0) -> dict[str, str]:
    """Return the settings of workers where a second of the scenario lasts so many real ones."""
    return WORKER | {key: str(round(int(WORKER[key]) * slow_motion)) for key in STRETCHED}


def apply(values: dict[str, str]) -> dict[str, str]:
    """Set them in the calling thread's namespace, before it has interfaces; return those in force."""
    done = {}
    for key, value in values.items():
        try:
            write_sysctl(key, value)
        except FileNotFoundError:  # this kernel has no such setting, or one for all namespaces
            continue
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            continue  # it knows other values
        done[key] = value
    return done
