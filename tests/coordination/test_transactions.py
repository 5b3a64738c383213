"""Invariants 7 to 12, 15, 19 and 21 on real files: what a transaction may do, and for which generation."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from wakeful_coordination import Committed, Coordination, Generation, Mutation, Quarantined
from wakeful_coordination.errors import InvalidRecord, NotCaptured, NotFound, Superseded
from wakeful_coordination.layout import instance_path
from wakeful_coordination.posix import PosixFilesystem
from wakeful_coordination.testing.children import Child


def put(instance: str, body: str, name: str = "state.json") -> Mutation:
    return Mutation(instance, name, body)


def forced_replacement(path: str, instance: str) -> None:
    """Replace a generation as no code of ours would: without its lease, in the middle of a transaction."""
    file = Path(path, instance_path(instance), "generation.json")
    known = json.loads(file.read_bytes())
    spare = file.with_suffix(".rogue")
    spare.write_text(json.dumps(known | {"id": "f" * 32, "seq": known["seq"] + 1, "prev": known["id"]}))
    os.replace(spare, file)


class Meddling(PosixFilesystem):
    """The real filesystem, in which something happens right after a name has been made."""

    def __init__(self, name: str, deed: Callable[[], None]) -> None:
        super().__init__()
        self._name = name
        self._deed = deed
        self.armed = False

    def _made(self, name: str) -> None:
        if self.armed and name == self._name:
            self.armed = False
            self._deed()

    def rename(self, source: str, target: str, at: int) -> None:
        super().rename(source, target, at)
        self._made(target)

    def rename_new(self, source: str, target: str, at: int) -> None:
        super().rename_new(source, target, at)
        self._made(target)

    def link(self, source: str, source_at: int, target: str, target_at: int) -> None:
        super().link(source, source_at, target, target_at)
        self._made(target)


def test_invariant_07_a_write_without_a_captured_generation_is_refused(coord: Coordination) -> None:
    coord.generations.open("a")
    nothing: Generation = None  # type: ignore[assignment]
    for attempt in (
        lambda: coord.terminals.record(nothing, "succeeded"),
        lambda: coord.caches.write(nothing, b""),
        lambda: coord.transaction(nothing, "comment", {}),
        lambda: coord.conclude(nothing, "succeeded"),
    ):
        with pytest.raises(NotCaptured):
            attempt()


def test_invariant_07_every_kind_of_write_compares_the_captured_generation(coord: Coordination) -> None:
    old = coord.generations.open("a")
    new = coord.generations.replace(old)
    for attempt in (
        lambda: coord.terminals.record(old, "succeeded"),
        lambda: coord.caches.write(old, b""),
        lambda: coord.publish(coord.transaction(old, "comment", {})),
        lambda: coord.generations.replace(old),
        lambda: coord.generations.retire(old),
    ):
        with pytest.raises(Superseded):
            attempt()
    assert coord.generations.capture("a") == new
    assert coord.outbox.pending() == []


def test_invariant_07_each_participant_is_compared_not_only_the_events_own(coord: Coordination) -> None:
    a, b = coord.generations.open("a"), coord.generations.open("b")
    coord.generations.replace(b)
    with pytest.raises(Superseded):
        coord.publish(coord.transaction(a, "comment", {}, mutations=[put("b", "x")], others=[b]))


def test_invariant_08_a_transaction_replayed_after_a_replacement_is_quarantined(coord: Coordination) -> None:
    old = coord.generations.open("a")
    transaction = coord.transaction(old, "comment", {}, mutations=[put("a", "old")])
    coord.publish(transaction)
    new = coord.generations.replace(old)
    outcome = coord.authority.settle(transaction.txid)
    assert isinstance(outcome, Quarantined)
    assert outcome.applied == ()
    assert "replaced" in outcome.reason
    assert coord.state(new) is None
    assert coord.state(old) is None
    assert coord.authority.receipt(transaction.txid) is None
    with pytest.raises(Superseded, match="replaced"):
        coord.quarantine.retry(transaction.txid)
    assert isinstance(coord.authority.settle(transaction.txid), Quarantined)


@pytest.mark.parametrize(
    ("moment", "applied"),
    [("pending", ()), ("state.json", ("a/state.json",))],
    ids=["between publication and mutation", "between mutation and commit"],
)
def test_invariant_08_a_replacement_in_the_middle_is_seen_at_the_next_boundary(
    path: str, moment: str, applied: tuple[str, ...]
) -> None:
    files = Meddling(moment, lambda: forced_replacement(path, "a"))
    with Coordination.open(path, files=files) as coord:
        old = coord.generations.open("a")
        files.armed = True
        outcome = coord.transact(coord.transaction(old, "comment", {}, mutations=[put("a", "old")]))
        assert isinstance(outcome, Quarantined)
        assert outcome.applied == applied
        assert coord.state(coord.generations.capture("a")) is None
        assert coord.authority.receipt(outcome.txid) is None
        with coord.lease("a"):
            pass


def test_invariant_08_a_replacement_during_preparation_leaves_nothing_behind(path: str) -> None:
    files = Meddling("lease", lambda: None)
    with Coordination.open(path, files=files) as coord:
        old = coord.generations.open("a")
        transaction = coord.transaction(old, "comment", {})
        coord.generations.replace(old)
        with pytest.raises(Superseded):
            coord.publish(transaction)
        assert coord.outbox.pending() == []


def test_invariant_08_a_killed_writers_transaction_is_finished_before_its_instance_is_replaced(
    coord: Coordination, path: str
) -> None:
    script = """
c = Coordination.open(sys.argv[1])
a, b = (c.generations.capture(name) for name in ("a", "b"))
t = c.transaction(a, "comment", {}, mutations=[Mutation("a", "state.json", "x"), Mutation("b", "state.json", "y")],
                  others=[b])
c.publish(t)
c.authority._mutate = lambda *a: (say(t.txid), hear())
c.authority.settle(t.txid)
"""
    a, b = coord.generations.open("a"), coord.generations.open("b")
    with Child(script, path) as child:
        txid = child.hear()
        child.kill()
    new = coord.generations.replace(b)
    assert coord.authority.receipt(txid) is not None
    assert (coord.state(a), coord.state(b), coord.state(new)) == ("x", "y", None)


def test_invariant_09_and_11_an_acknowledged_preparation_is_in_exactly_one_place(coord: Coordination) -> None:
    generation = coord.generations.open("a")
    kept, applied = (coord.transaction(generation, "comment", {"n": number}) for number in range(2))
    for one in (kept, applied):
        coord.publish(one)
    coord.quarantine.order(kept.txid, "looks wrong")
    coord.authority.settle(applied.txid)
    coord.relay(lambda outcome: None)
    assert coord.outbox.pending() == []
    assert coord.authority.receipt(kept.txid) is None
    assert coord.quarantine.holds(kept.txid)
    assert coord.authority.receipt(applied.txid) is not None
    assert not coord.quarantine.holds(applied.txid)


def test_invariant_10_a_committed_transaction_has_changed_all_its_files(coord: Coordination) -> None:
    a, b = coord.generations.open("a"), coord.generations.open("b")
    changes = [put("a", "1"), put("b", "2"), put("b", "3", "state-extra.json")]
    outcome = coord.transact(coord.transaction(a, "comment", {"text": "hé"}, mutations=changes, others=[b]))
    assert isinstance(outcome, Committed)
    assert (coord.state(a), coord.state(b), coord.state(b, "state-extra.json")) == ("1", "2", "3")
    receipt = coord.authority.receipt(outcome.transaction.txid)
    assert receipt is not None
    assert receipt.event.body == {"text": "hé"}


def test_invariant_11_quarantine_applies_nothing_and_keeps_the_bytes(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    transaction = coord.transaction(generation, "comment", {}, mutations=[put("a", "x")])
    coord.publish(transaction)
    coord.quarantine.order(transaction.txid, "looks wrong")
    assert coord.state(generation) is None
    assert Path(path, "outbox/quarantine", f"{transaction.txid}.json").read_bytes() == transaction.data
    assert coord.quarantine.read(transaction.txid).reason == "operator: looks wrong"
    with pytest.raises(NotFound):
        coord.quarantine.order(transaction.txid, "again")
    assert isinstance(coord.authority.settle(transaction.txid), Quarantined)
    assert coord.state(generation) is None
    coord.quarantine.retry(transaction.txid)
    assert isinstance(coord.authority.settle(transaction.txid), Committed)
    assert coord.state(generation) == "x"
    with pytest.raises(InvalidRecord, match="committed"):
        coord.quarantine.order(transaction.txid, "too late")


def test_invariant_12_recovery_twice_is_recovery_once(coord: Coordination, path: str) -> None:
    old = coord.generations.open("a")
    other = coord.generations.open("b")
    for generation in (old, other):
        coord.publish(coord.transaction(generation, "comment", {}, mutations=[put(generation.instance, "x")]))
    coord.generations.replace(old)
    first = coord.recover()
    assert (len(first.committed), len(first.quarantined), first.left) == (1, 1, ())

    def everything() -> dict[str, bytes]:
        places = ("instances", "outbox", "receipts")
        return {str(one): one.read_bytes() for place in places for one in Path(path, place).rglob("*") if one.is_file()}

    before = everything()
    again = coord.recover()
    assert again.quarantined == ()
    assert everything() == before


def test_recovery_removes_what_dead_sessions_left_and_nothing_else(coord: Coordination, path: str) -> None:
    script = "c = Coordination.open(sys.argv[1]); say(c.root.sid); hear()"
    with Child(script, path) as dead, Child(script, path) as alive:
        gone, here = dead.hear(), alive.hear()
        dead.kill()
        leftovers = [Path(path, "outbox/pending", f".tmp-{sid}-{'t' * 16}.json") for sid in (gone, here)]
        foreign = Path(path, "outbox/pending", "notes.txt")
        for file in (*leftovers, foreign):
            file.write_text("half")
        assert coord.recover().sessions == (gone,)
        assert not leftovers[0].exists()
        assert leftovers[1].exists()
        assert foreign.exists()
        assert set(os.listdir(Path(path, "sessions"))) == {here, coord.root.sid}
        overview = coord.survey.overview()
        assert overview.strays == (leftovers[1].name, "notes.txt")


def test_a_session_that_dies_during_a_recovery_is_still_found_by_those_its_claim_stops(
    coord: Coordination, path: str
) -> None:
    script = """
c = Coordination.open(sys.argv[1])
g = c.generations.capture("a")
t = c.transaction(g, "comment", {}, mutations=[Mutation("a", "state.json", "new")])
c.publish(t)
c.leases.acquire(("a",), None, False)
c.authority._mark(t)
say(c.root.sid); hear()
"""
    generation = coord.generations.open("a")
    listed = coord.outbox.pending
    died: list[str] = []

    def list_then_die(*place: str) -> list[str]:
        found = listed(*place)
        if not place:
            with Child(script, path) as child:
                died.append(child.hear())
                child.kill()
        return found

    coord.outbox.pending = list_then_die  # type: ignore[method-assign]
    assert coord.recover().sessions == ()
    coord.outbox.pending = listed  # type: ignore[method-assign]
    with coord.lease("a"):
        assert coord.state(generation) == "new"
    assert coord.recover().sessions == tuple(died)


def test_invariant_15_a_receipt_outlives_its_owner_and_its_generation(coord: Coordination, path: str) -> None:
    script = """
c = Coordination.open(sys.argv[1])
g = c.generations.capture("a")
done = c.transact(c.transaction(g, "spend", {"money": "0.10"}))
c.conclude(g, "succeeded"); c.generations.retire(g)
say(done.transaction.txid); hear()
"""
    old = coord.generations.open("a")
    with Child(script, path) as child:
        txid = child.hear()
        child.kill()
    coord.generations.open("a")
    coord.relay(lambda outcome: None)
    found = coord.authority.receipt(txid)
    assert found is not None
    assert found.event.generation_id == old.id
    settled = coord.authority.settle(txid)
    assert isinstance(settled, Committed)


def test_a_retired_generation_finishes_what_was_acknowledged_and_begins_nothing(coord: Coordination) -> None:
    generation = coord.generations.open("a")
    transaction = coord.transaction(generation, "comment", {}, mutations=[put("a", "x")])
    coord.publish(transaction)
    coord.generations.retire(generation)
    with pytest.raises(Superseded, match="retired"):
        coord.publish(coord.transaction(generation, "comment", {}))
    with pytest.raises(NotFound):
        coord.generations.capture("a")
    assert isinstance(coord.authority.settle(transaction.txid), Committed)
    assert coord.state(generation) == "x"


def test_invariant_19_the_same_transaction_again_is_answered_not_added(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    heard: list[str] = []

    def deliver(outcome: object) -> None:
        assert isinstance(outcome, Committed)
        heard.append(outcome.transaction.txid)

    def again() -> bool:
        # A later second and another session ask for the same thing.
        return coord.publish(coord.transaction(generation, "comment", {"text": "x"}, txid="t" * 32)).repeated

    fixed = coord.root.now()
    coord.root.now = lambda: fixed
    assert not again()
    assert again()
    coord.relay(deliver)
    assert again()
    coord.relay(deliver)
    assert heard == ["t" * 32]
    with pytest.raises(InvalidRecord, match="says something else"):
        coord.publish(coord.transaction(generation, "comment", {"text": "y"}, txid="t" * 32))


def test_invariant_21_seq_grows_and_no_id_comes_back(coord: Coordination) -> None:
    seen = [coord.generations.open("a")]
    with pytest.raises(Superseded, match="has open generation 1"):
        coord.generations.open("a")
    for _ in range(3):
        seen.append(coord.generations.replace(seen[-1]))
    coord.generations.retire(seen[-1])
    coord.generations.retire(seen[-1])
    seen.append(coord.generations.open("a"))
    assert [one.seq for one in seen] == [1, 2, 3, 4, 5]
    assert len({one.id for one in seen}) == 5
    assert Generation.parse(seen[-1].token) == seen[-1]


def test_invariant_21_racing_creators_open_one_generation(coord: Coordination, path: str) -> None:
    script = """
with Coordination.open(sys.argv[1]) as c:
    say("ready"); hear()
    try: say(c.generations.open("new").seq)
    except CoordinationError as error: say(type(error).__name__)
"""
    children = [Child(script, path) for _ in range(4)]
    try:
        for child in children:
            child.hear()
        for child in children:
            child.tell("go")
        answers = sorted(child.hear() for child in children)
    finally:
        for child in children:
            child.__exit__(None, None, None)
    assert answers == ["1", "Superseded", "Superseded", "Superseded"]


def test_a_relay_tells_each_once_in_order_and_is_hindered_by_none(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    sent = [coord.transaction(generation, "comment", {"n": number}) for number in range(3)]
    for one in sent:
        coord.publish(one)
    coord.transact(coord.transaction(generation, "note", {}, kind="local"))
    pending = Path(path, "outbox/pending")
    (pending / f"{'0' * 16}.json").write_text("{")
    (pending / f"{'1' * 16}.json").write_text(json.dumps({"v": 99}))
    nobody = coord.transaction(Generation("nobody", 1, "g" * 32), "comment", {})
    (pending / f"{nobody.txid}.json").write_bytes(nobody.data)
    heard: list[object] = []
    relayed = coord.relay(heard.append)
    assert relayed.committed == tuple(one.txid for one in sent)
    assert set(relayed.quarantined) == {"0" * 16, nobody.txid}
    # Another release wrote it, and will settle it: it is refused here and stays.
    ((unknown, reason),) = relayed.left
    assert unknown == "1" * 16
    assert "version 99 is not known" in reason
    assert coord.outbox.pending() == [unknown]
    assert [type(one).__name__ for one in heard].count("Committed") == 3
    reasons = {one.txid: one.reason for one in coord.survey.overview().quarantined}
    assert "not a JSON record" in reasons["0" * 16]
    assert "no instance nobody" in reasons[nobody.txid]
    assert coord.relay(heard.append).committed == ()


def test_a_delivery_that_fails_is_made_again(coord: Coordination) -> None:
    generation = coord.generations.open("a")
    coord.publish(coord.transaction(generation, "comment", {}))

    class Unplugged(Exception):
        pass

    def fail(outcome: object) -> None:
        raise Unplugged

    with pytest.raises(Unplugged):
        coord.relay(fail)
    assert len(coord.relay(lambda outcome: None).committed) == 1


def test_no_lease_is_held_while_a_consumer_is_told(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    coord.publish(coord.transaction(generation, "comment", {}))

    def deliver(outcome: object) -> None:
        with Coordination.open(path) as other, other.lease("a", timeout=0):
            pass

    assert len(coord.relay(deliver).committed) == 1
