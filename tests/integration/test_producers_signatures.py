"""Each database producer has one Python face with its very arguments, and the other way round."""

from __future__ import annotations

import inspect
from typing import Any

import psycopg

import wakeful
from wakeful import producers


def faces() -> dict[str, dict[str, bool]]:
    """Return the Python producers: argument names, and whether each must be given."""
    found = {}
    for name in producers.__all__:
        face = getattr(producers, name)
        if inspect.isfunction(face) and name != "run":
            parameters = inspect.signature(face).parameters.values()
            found[name] = {one.name: one.default is inspect.Parameter.empty for one in parameters}
    return found


def functions(conn: psycopg.Connection[Any]) -> dict[str, dict[str, bool]]:
    """Return the database's producers: argument names, and whether each must be given."""
    rows = conn.execute(
        "SELECT proname, proargnames, pronargs, pronargdefaults FROM pg_proc"
        " WHERE pronamespace = 'wakeful'::regnamespace AND prosecdef AND prorettype = 'wakeful.receipt'::regtype"
    ).fetchall()
    return {
        name: {argument: at < count - defaults for at, argument in enumerate(arguments[:count])}
        for name, arguments, count, defaults in rows
    }


def test_faces_and_functions_are_the_same(conn: psycopg.Connection[Any]) -> None:
    ours, theirs = faces(), functions(conn)
    assert sorted(ours) == sorted(theirs)
    assert {name: set(ours[name]) for name in ours} == {name: set(theirs[name]) for name in theirs}
    lenient = {
        f"{name}({argument})": (must, theirs[name][argument])
        for name, arguments in ours.items()
        for argument, must in arguments.items()
        if theirs[name][argument] and not must
    }
    assert lenient == {}


def test_every_producer_takes_an_actor_but_the_bare_signal() -> None:
    assert [name for name, arguments in faces().items() if "actor" not in arguments] == ["signal_gate"]


def test_the_package_offers_every_face() -> None:
    assert [name for name in faces() if not hasattr(wakeful, name)] == []
