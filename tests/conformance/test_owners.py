"""Every first-party owner keeps every rule; for each rule a deliberately wrong owner breaks just that one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.conformance import wrong_owners
from tests.conformance.wrong_owners import KIND
from tests.duties import CASES, run_on, wake_of

from wakeful import producers
from wakeful.testing import Database
from wakeful.testing.conformance import RULES, Case, NonConforming, Place, check

Conn = Any
WRONG = "tests.conformance.wrong_owners"


def asked(conn: Conn, place: Place, kind: str = KIND) -> UUID:
    return wake_of(conn, producers.request_wake(place.company, place.agent, place.issue, kind=kind))


def into_backlog(conn: Conn, place: Place) -> None:
    producers.run(conn, producers.set_issue_status(place.company, place.issue, "backlog"))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("duty", CASES)
def test_every_owner_keeps_every_rule(duty: str, rule: str, database: Database, tmp_path: Path) -> None:
    check(rule, CASES[duty], database, tmp_path)


def parcels(wrong: str, **changes: Any) -> Case:
    return Case((f"{WRONG}:{wrong}",), KIND, asked, spoil=into_backlog, **changes)


def certified_parcel(conn: Conn, place: Place) -> tuple[UUID, UUID]:
    run = run_on(conn, place)
    wake = asked(conn, place)
    conn.execute("UPDATE wakeful.wake SET certified_run = %s, certified_generation = 1 WHERE id = %s", (run, wake))
    return wake, run


def pause_company(conn: Conn, place: Place) -> None:
    producers.run(conn, producers.pause_company(place.company))


def resume_company(conn: Conn, place: Place) -> None:
    producers.run(conn, producers.resume_company(place.company))


BROKEN = {
    "reconstructs after restart": ("Forgetful", {}),
    "pages without loss or repeat": ("Batcher", {}),
    "re-reads at due": ("Memoising", {}),
    "silent when blocked": ("Poller", {}),
    "wakes on its gate's producer": ("Misnaming", {"block": pause_company, "reopen": resume_company}),
    "settles once under concurrency": ("Doubler", {}),
    "honours generation": ("Forfeiting", {"certified": certified_parcel}),
    "idle when disabled": ("Busybody", {}),
    "survives SIGKILL at each commit boundary": ("Scribbling", {}),
    "keeps its exits apart": ("Throwing", {}),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_wrong_owner_is_told_which_rule_it_breaks(
    rule: str, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, changes = BROKEN[rule]
    for wrong in (wrong_owners.Doubler, wrong_owners.Busybody):
        monkeypatch.setattr(wrong, "dsn", database.dsn)
    notes = tmp_path / "notes"
    notes.mkdir()
    monkeypatch.setenv("WRONG_OWNERS_NOTES", str(notes))
    assert os.environ["WRONG_OWNERS_NOTES"]
    with pytest.raises(NonConforming, match=f"^{rule}: ") as caught:
        check(rule, parcels(name, **changes), database, tmp_path / "data", patience=5)
    assert caught.value.rule == rule


@pytest.mark.parametrize("rule", RULES)
def test_the_sound_owner_that_they_are_made_from_keeps_them(rule: str, database: Database, tmp_path: Path) -> None:
    changes = BROKEN[rule][1]
    check(rule, parcels("Parcels", **changes), database, tmp_path / "data")


def test_an_unknown_rule_is_named(database: Database, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'splendour' is no rule; one of: reconstructs"):
        check("splendour", CASES["request"], database, tmp_path)
