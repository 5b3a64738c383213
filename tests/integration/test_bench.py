"""The bench measures: every promised row is there, held against a limit of the same run. Its speed proves nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "run.py"
PAIRED = {
    "wake_latency_p50",
    "request_latency_p50",
    "deadline_lateness_p99",
    "enqueue_per_s",
    "enqueue_bulk_per_s",
    "drain_per_s",
    "drain_limited_per_s",
    "emit_to_row_p50_ms",
}
ALONE = {"fsyncs_per_s", "idle_statements_per_min", "deadline_lateness_p99_stream"}


@pytest.mark.timeout(180)
def test_a_quick_bench_writes_every_row_with_its_limit(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    bench = subprocess.run(
        [sys.executable, str(BENCH), "--quick", "--results", str(results)], capture_output=True, text=True, check=False
    )
    assert bench.returncode == 0, bench.stderr
    written = json.loads(results.read_text(encoding="utf-8"))
    assert written["header"]["quick"] is True
    assert {"cores", "postgresql", "fsync", "python"} <= written["header"].keys()
    rows = {row["name"]: row for row in written["rows"]}
    assert rows.keys() >= PAIRED | ALONE
    for name in PAIRED:
        row = rows[name]
        assert row["value"] > 0, name
        assert row["limit"] > 0, name
        assert row["ratio"] > 0, name
        assert row["n"] >= 1, name
    assert rows["idle_statements_per_min"]["value"] == 0
    assert "wake_latency_p50" in bench.stdout


def test_a_bench_that_cannot_measure_fails(tmp_path: Path) -> None:
    bench = subprocess.run(
        [
            sys.executable,
            str(BENCH),
            "--quick",
            "--only",
            "enqueue",
            "--results",
            str(tmp_path / "none" / "results.json"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert bench.returncode == 1
    assert "results.json" in bench.stderr
