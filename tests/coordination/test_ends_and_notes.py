"""agent.end, the notes beside what a consumer did not take, and roots among files that are not theirs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wakeful_coordination import Coordination, CoordinationError
from wakeful_coordination.errors import StorageFailed, UnsafePath
from wakeful_coordination.layout import instance_path
from wakeful_coordination.posix import PosixFilesystem
from wakeful_coordination.testing.children import Child


def test_invariant_14_agent_end_is_recorded_by_permission_only_and_once(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    assert coord.ends.read(generation) is None
    permission = coord.conclude(generation, "succeeded")
    assert coord.ends.read(generation) is None
    coord.generations.retire(generation)
    first = coord.ends.record(permission)
    assert (first.generation, first.outcome) == (generation, "succeeded")
    assert coord.ends.record(coord.conclude(generation, "succeeded")) == first == coord.ends.read(generation)
    (only,) = [one for one in os.listdir(Path(path, instance_path("a"))) if one.startswith("end-")]
    assert only == f"end-{generation.id}.json"
    newer = coord.generations.open("a")
    assert coord.ends.read(newer) is None


class Failing(PosixFilesystem):
    """A disk on which the n-th flush from now on fails."""

    def __init__(self) -> None:
        super().__init__()
        self.left = -1

    def sync(self, fd: int) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(5, os.strerror(5))
        super().sync(fd)


@pytest.mark.parametrize("flush", [1, 2])
def test_invariant_20_an_agent_end_that_is_not_flushed_is_not_acknowledged(path: str, flush: int) -> None:
    disk = Failing()
    with Coordination.open(path, files=disk) as coord:
        generation = coord.generations.open("a")
        permission = coord.conclude(generation, "succeeded")
        disk.left = flush
        with pytest.raises(StorageFailed):
            coord.ends.record(permission)
    with Coordination.open(path) as coord:
        assert coord.ends.record(coord.conclude(generation, "succeeded")).outcome == "succeeded"


def test_invariant_14_two_who_record_agree(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    coord.conclude(generation, "succeeded")
    script = "c = Coordination.open(sys.argv[1]); g = Generation.parse(sys.argv[2])\n"
    with Child(script + 'say(c.ends.record(c.conclude(g, "succeeded")).at)', path, generation.token) as other:
        said = other.hear()
    assert coord.ends.record(coord.conclude(generation, "succeeded")).at == said


def test_a_note_says_why_a_transaction_is_still_there(coord: Coordination) -> None:
    generation = coord.generations.open("a")
    txid = coord.publish(coord.transaction(generation, "comment", {"text": "x"})).txid
    assert coord.undelivered.read(txid) is None
    first = coord.undelivered.note(txid, "nobody takes it", refused=False)
    assert coord.undelivered.note(txid, "nobody takes it", refused=False) == first == coord.undelivered.read(txid)
    assert coord.outbox.pending() == [txid]
    overview = coord.survey.overview()
    assert (overview.pending[0].note, overview.strays) == (first, ())
    assert coord.undelivered.note(txid, "x" * 9000, refused=True).reason == "x" * 2000
    assert coord.relay_one(txid, lambda outcome: None) is not None
    assert (coord.outbox.pending(), coord.undelivered.read(txid), coord.survey.overview().strays) == ([], None, ())
    coord.undelivered.note(txid, "told too late", refused=True)
    assert coord.undelivered.read(txid) is None


def test_one_transaction_is_relayed_once_and_stays_where_it_is_refused(coord: Coordination) -> None:
    generation = coord.generations.open("a")
    first, second = (coord.publish(coord.transaction(generation, "note", {})).txid for _ in range(2))
    told: list[str] = []

    def refuse(outcome: object) -> None:
        raise CoordinationError("not now")

    with pytest.raises(CoordinationError, match="not now"):
        coord.relay_one(first, refuse)
    assert coord.relay_one(second, lambda outcome: told.append("second")) is not None
    assert coord.relay_one(second, lambda outcome: told.append("again")) is None
    assert (told, coord.outbox.pending()) == (["second"], [first])


def test_what_was_delivered_meanwhile_is_not_delivered_again(coord: Coordination) -> None:
    generation = coord.generations.open("a")
    txid = coord.publish(coord.transaction(generation, "note", {})).txid
    assert coord.relay(lambda outcome: None).committed == (txid,)
    assert coord.relay_one(txid, lambda outcome: pytest.fail("told again")) is None


def test_a_root_is_made_among_other_files_only_where_that_is_asked_for(tmp_path: Path) -> None:
    place = tmp_path / "root"
    place.mkdir(mode=0o700)
    (place / "4b0d-an-earlier-run").mkdir()
    with pytest.raises(UnsafePath, match="holds other files"):
        Coordination.open(str(place))
    with Coordination.open(str(place), among=True) as coord:
        coord.generations.open("a")
        assert coord.survey.overview().foreign == ("4b0d-an-earlier-run",)
    assert (place / "4b0d-an-earlier-run").is_dir()
    with Coordination.open(str(place)) as coord:
        assert coord.generations.capture("a").seq == 1
