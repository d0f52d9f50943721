"""Addresses that only programs of this machine can reach."""

import ipaddress
import socket


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine can reach the host."""
    try:
        addresses = {item[4][0] for item in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(str(item).partition("%")[0]).is_loopback for item in addresses)


def is_loopback_name(host: str) -> bool:
    """Return whether the host is ``localhost`` or a loopback address. The name is not resolved."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
