"""What concerns the whole instance, and the hosts' own gates."""

from __future__ import annotations

from wakeful.producers import arguments as check
from wakeful.producers.statement import Statement, call


def set_setting(name: str, value: bool | int, *, actor: str | None = None) -> Statement:
    """Change a setting of the whole instance, for all companies and hosts.

    Arguments:
        name: scheduler_enabled, owners_enabled, draining, panic, create_companies: true or false;
            retention_days, dedup_days: days, circuit_ends: runs, ramp_starts: per second, ramp_doubles: seconds;
            1 to 99999.
    """
    return call("set_setting", check.identifier("name", name), check.document("value", value), check.actor(actor))


def signal_gate(company: str, gate: str, key: str) -> Statement:
    """Say that a gate of the host's own has opened: what waits behind it is looked at again."""
    return call(
        "signal_gate",
        check.identifier("company", company),
        check.identifier("gate", gate),
        check.identifier("key", key),
    )


def declare_host_dead(host: str, *, actor: str | None = None) -> Statement:
    """Say that a host is gone for good: its runs move, or go back to the queue; its late writes are refused."""
    return call("declare_host_dead", check.identifier("host", host), check.actor(actor))
