"""Which addresses a hook may have, and which IP addresses are public."""

from __future__ import annotations

import ipaddress
import socket
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import SplitResult, urlsplit

from requests_hardened.ip_filter import EXTRA_BLOCKED_NET_RANGES

LONGEST_URL = 2_000  # characters; the column's length
_IPV4_COMPATIBLE = ipaddress.ip_network("::/96")  # RFC 4291, 2.5.5.1: an IPv4 address in disguise, deprecated


def is_public(*, ip: IPv4Address | IPv6Address) -> bool:
    """Whether the address belongs to somebody on the internet, and not to this machine or a network around it."""
    if isinstance(ip, IPv6Address):
        if ip.ipv4_mapped is not None:
            return is_public(ip=ip.ipv4_mapped)
        if ip.is_site_local or ip in _IPV4_COMPATIBLE:
            return False
    blocked = any(ip.version == network.version and ip in network for network in EXTRA_BLOCKED_NET_RANGES)
    return ip.is_global and not ip.is_multicast and not blocked


def url_problem(*, url: str, allow_private: bool) -> str:
    """Why the address can't be a hook's, in words; "" where it can.

    A name is not looked up here: what it leads to is judged at each call, on the connection itself.
    """
    if len(url) > LONGEST_URL:
        return f"An address has at most {LONGEST_URL:,} characters."
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return "Only printable ASCII is taken; a name in another script is written as xn--…"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "This is not an address."
    return _parts_problem(parts) or _host_problem(parts.hostname or "", port=port, allow_private=allow_private)


def _parts_problem(parts: SplitResult) -> str:
    if parts.scheme not in ("http", "https"):
        return "Only http:// and https:// are taken."
    if "@" in parts.netloc:
        return "An address must not hold a user name or a password: requests are signed instead."
    if parts.fragment:
        return "An address must not have a fragment (#…): it is never sent."
    return ""


def _host_problem(host: str, *, port: int | None, allow_private: bool) -> str:
    if not host or "%" in host or port == 0:
        return "This is not an address."
    if allow_private:
        return ""
    ip = literal_address(host=host)
    name = host.rstrip(".")
    if (ip is not None and not is_public(ip=ip)) or name == "localhost" or name.endswith(".localhost"):
        return "Only public addresses are taken, and this one is private or of the server itself."
    return ""


def literal_address(*, host: str) -> IPv4Address | IPv6Address | None:
    """The IP address that the host writes out, in any form that resolvers take (127.1, 0x7f.1, 2130706433)."""
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host.rstrip(".")))
    except OSError:
        return None
