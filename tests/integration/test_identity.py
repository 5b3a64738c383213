"""Who is alive: proven by the lock of a scheduler's process, never by a name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from wakeful.errors import WakefulError
from wakeful.identity import Identity

PROCESS = """
import signal, sys
from pathlib import Path
from wakeful.identity import Identity
print(Identity(Path(sys.argv[1]), "host").claimer, flush=True)
signal.pause()
"""


def in_a_process(data: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen([sys.executable, "-c", PROCESS, data], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def killed(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=20)


def locks(data: Path) -> set[str]:
    return {path.stem for path in (data / "schedulers").glob("*.lock")}


def test_a_living_process_is_not_dead_and_a_killed_one_is(tmp_path: Path) -> None:
    mine = Identity(tmp_path, "host")
    process, other = in_a_process(tmp_path)
    try:
        assert mine.reaches(other)
        assert not mine.is_dead(other)
        assert not mine.is_dead(mine.claimer)
    finally:
        killed(process)
    assert mine.is_dead(other)
    assert mine.is_dead(other)  # its file is gone by now
    assert locks(tmp_path) == {mine.id}


def test_the_next_one_removes_what_the_dead_left(tmp_path: Path) -> None:
    process, other = in_a_process(tmp_path)
    lives = Identity(tmp_path, "host")
    killed(process)
    assert len(locks(tmp_path)) == 2
    mine = Identity(tmp_path, "another host")
    assert locks(tmp_path) == {lives.id, mine.id}
    assert mine.is_dead(other)
    assert not mine.is_dead(lives.claimer)


def test_after_its_close_it_counts_as_dead(tmp_path: Path) -> None:
    first, second = Identity(tmp_path, "host"), Identity(tmp_path, "host")
    assert not second.is_dead(first.claimer)
    first.close()
    first.close()
    assert second.is_dead(first.claimer)


def test_another_data_directory_is_out_of_reach(tmp_path: Path) -> None:
    here, there = Identity(tmp_path / "here", "host"), Identity(tmp_path / "there", "host")
    assert not here.reaches(there.claimer)
    assert not here.reaches(None)
    assert Identity(tmp_path / "here", "renamed").reaches(here.claimer)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "a/b"])
def test_a_claimer_that_names_no_scheduler_is_never_dead(tmp_path: Path, name: str) -> None:
    mine = Identity(tmp_path, "host")
    assert not mine.is_dead(f"{mine.data_id}/{name}")


def test_a_data_directory_that_cannot_be_used_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(WakefulError, match="cannot be used"):
        Identity(tmp_path / "data", "host")
