from __future__ import annotations

import os
import stat
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wakeful import config
from wakeful.config_values import duration
from wakeful.errors import ConfigError, InvalidInput


def load(tmp_path: Path, flags: dict[str, object] | None = None, **environ: str) -> config.Config:
    return config.load(flags or {}, {"HOME": str(tmp_path)} | environ, tmp_path)


def write(folder: Path, text: str) -> Path:
    path = folder / "wakeful.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_flags_beat_environment_beats_file_beats_default(tmp_path: Path) -> None:
    path = write(tmp_path, 'slots = 3\npoll = "3s"\nhost = "from-file"\n')
    found = load(tmp_path, {"slots": 1, "host": None}, WAKEFUL_SLOTS="2", WAKEFUL_POLL="2")
    assert (found.slots, found.poll, found.host, found.notify) == (1, timedelta(seconds=2), "from-file", "on")
    assert [found.origins[name] for name in ("slots", "poll", "host", "notify")] == [
        "flag --slots",
        "environment WAKEFUL_POLL",
        str(path),
        "default",
    ]


def test_defaults_are_those_of_the_reference(tmp_path: Path) -> None:
    found = load(tmp_path)
    assert (found.dsn, found.listen_dsn, found.company, found.postgres) == (None, None, None, "wheel")
    assert (found.plugins_strict, found.plugins_disabled, found.notify) == (False, (), "on")
    assert (found.poll, found.shutdown_grace) == (timedelta(seconds=5), timedelta(seconds=30))
    assert (found.stop_children, found.slots, dict(found.nouns)) == ("leave", 32, {})
    assert found.host == os.uname().nodename
    assert found.actor.startswith("user:")
    assert set(found.origins.values()) == {"default"}


def test_file_is_found_in_a_parent_and_its_paths_are_its_own(tmp_path: Path) -> None:
    write(tmp_path, 'data = "state"\n')
    below = tmp_path / "a/b"
    below.mkdir(parents=True)
    environ = {"HOME": str(tmp_path)}
    assert config.load({}, environ, below).data == tmp_path / "state"
    assert config.load({"data": "state"}, environ, below).data == below / "state"
    assert config.load({"data": "~/x"}, environ, below).data == tmp_path / "x"


def test_named_file_replaces_the_search(tmp_path: Path) -> None:
    write(tmp_path, "slots = 3\n")
    named = tmp_path / "other.toml"
    named.write_text("slots = 4\n", encoding="utf-8")
    assert load(tmp_path, WAKEFUL_CONFIG="other.toml").slots == 4
    assert load(tmp_path, {"config": named}).slots == 4
    with pytest.raises(ConfigError, match=r"none\.toml cannot be read: No such file"):
        load(tmp_path, WAKEFUL_CONFIG=str(tmp_path / "none.toml"))


def test_strangers_file_in_a_folder_open_to_all_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "slots = 3\n")
    tmp_path.chmod(tmp_path.stat().st_mode | stat.S_IWOTH | stat.S_ISVTX)
    assert load(tmp_path).slots == 3
    stranger = os.geteuid() + 1
    if os.geteuid() == 0:
        os.chown(path, stranger, -1)
    monkeypatch.setattr(os, "geteuid", lambda: stranger + 1)
    with pytest.raises(ConfigError, match="belongs to another account") as refusal:
        load(tmp_path)
    assert "WAKEFUL_CONFIG" in str(refusal.value.hint)
    assert load(tmp_path, WAKEFUL_CONFIG=str(path)).slots == 3


@pytest.mark.parametrize(
    ("name", "bad", "said"),
    [
        ("poll", "soon", "not a length of time"),
        ("poll", "0", "no time at all"),
        ("poll", "-1s", "not a length of time"),
        ("shutdown_grace", "31d", "not between nothing and 30 days"),
        ("slots", "0", "not a count"),
        ("slots", "1.5", "not a count"),
        ("slots", "99999999999", "not a count"),
        ("postgres", "docker", "none of the choices"),
        ("notify", "off", "none of the choices"),
        ("stop_children", "maybe", "none of the choices"),
        ("plugins_strict", "perhaps", "neither true nor false"),
        ("plugins_disabled", "a,\x07", "not a name"),
        ("company", " acme", "not a name"),
        ("host", "a\nb", "not a name"),
        ("actor", "x" * 201, "not a name"),
        ("data", "a\0b", "not a path"),
        ("dsn", "postgresql://bob:s3cret@h:5432/db?nonsense=1", "not a connection string"),
        ("listen_dsn", "host=h s3cret", "not a connection string"),
        ("nouns", "ticket", "not a table of words"),
    ],
)
def test_bad_value_names_setting_origin_and_remedy(tmp_path: Path, name: str, bad: str, said: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(tmp_path, **{f"WAKEFUL_{name.upper()}": bad})
    assert refusal.value.message == f"{name} (from environment WAKEFUL_{name.upper()}) is {said}"
    assert refusal.value.hint
    assert "s3cret" not in f"{refusal.value} {refusal.value.hint}"
    assert isinstance(refusal.value, InvalidInput)
    assert refusal.value.code == 2


@pytest.mark.parametrize("line", ["slots = true", "poll = [1]", "plugins_disabled = 3", "company = 7", "dsn = {}"])
def test_wrong_type_in_the_file_is_refused(tmp_path: Path, line: str) -> None:
    path = write(tmp_path, line)
    with pytest.raises(ConfigError, match=f"from {path}"):
        load(tmp_path)


def test_flag_of_the_actor_is_called_as(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"actor \(from flag --as\)"):
        load(tmp_path, {"actor": ""})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("shutdown_grase = 3", r"did you mean shutdown_grace\?"),
        ("listen-dsn = 'host=h'", r"did you mean listen_dsn\?"),
        ("zzz = 1", "'zzz' .* is no setting$"),
        ("[nouns]\nisue = 'ticket'", r"did you mean issue\?"),
        ("slots = +", "is not TOML: Invalid value"),
        ("a = 1\nslots 3", "is not TOML: .*line 2"),
    ],
)
def test_unusable_file_says_what_was_meant(tmp_path: Path, text: str, said: str) -> None:
    write(tmp_path, text)
    with pytest.raises(ConfigError, match=said):
        load(tmp_path)


def test_file_that_is_no_text_or_no_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    path.write_bytes(b"host = '\xff'\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError, match="Is a directory"):
        load(tmp_path)


def test_a_file_that_never_opens_or_never_ends_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wakeful.toml"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="no plain file"):
        load(tmp_path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="no plain file"):
        load(tmp_path)
    path.unlink()
    path.touch()
    os.truncate(path, config.ROOM + 1)
    with pytest.raises(ConfigError, match="more than 1 MiB"):
        load(tmp_path)


def test_unknown_flag_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"did you mean slots\?"):
        load(tmp_path, {"slot": 1})


def test_lists_tables_and_switches(tmp_path: Path) -> None:
    write(tmp_path, 'plugins_disabled = ["b", "c"]\nplugins_strict = true\n[nouns]\nissue = "ticket"\n')
    found = load(tmp_path)
    assert (found.plugins_disabled, found.plugins_strict, dict(found.nouns)) == (("b", "c"), True, {"issue": "ticket"})
    found = load(tmp_path, WAKEFUL_PLUGINS_DISABLED=" x, y ,x,", WAKEFUL_PLUGINS_STRICT="No")
    assert (found.plugins_disabled, found.plugins_strict) == (("x", "y"), False)


def test_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert load(tmp_path, WAKEFUL_DSN="", WAKEFUL_SLOTS="").dsn is None


def test_data_lies_in_the_users_own_place_and_roots_where_its_server_may_go() -> None:
    assert config.default_data({"XDG_DATA_HOME": "/x"}, 1000) == Path("/x/wakeful")
    assert config.default_data({"XDG_DATA_HOME": "relative", "HOME": "/h"}, 1000) == Path("/h/.local/share/wakeful")
    one = config.default_data({"HOME": "/h"}, 0)
    other = config.default_data({"XDG_DATA_HOME": "/x"}, 0)
    assert one.parent == other.parent == Path("/var/lib/wakeful")
    assert one != other
    assert one == config.default_data({"HOME": "/h"}, 0)
    with pytest.raises(ConfigError, match="no home directory"):
        config.default_data({}, 2**31 - 2)


def test_shown_hides_the_secrets_and_keeps_the_rest(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        {"dsn": "postgresql://bob:hunter2@db:5433/acme"},
        WAKEFUL_LISTEN_DSN="host=db user=bob password='hunter 2' dbname=acme",
        WAKEFUL_POLL="500ms",
    )
    rows = {name: (value, origin) for name, value, origin in config.shown(found)}
    assert rows["dsn"] == ("host=db port=5433 dbname=acme user=*** password=***", "flag --dsn")
    assert rows["listen_dsn"][0] == "host=db dbname=acme user=*** password=***"
    assert rows["poll"] == ("0.5s", "environment WAKEFUL_POLL")
    assert rows["company"] == ("(none)", "default")
    for text in (str(rows), repr(found)):
        assert "hunter" not in text
        assert "bob" not in text


UNITS = {"ms": 1, "s": 1000, "": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@given(number=st.integers(0, 10**6), unit=st.sampled_from(sorted(UNITS)))
def test_duration_is_number_times_unit(number: int, unit: str) -> None:
    meant = timedelta(milliseconds=number * UNITS[unit])
    if meant > timedelta(days=30):
        with pytest.raises(ValueError, match="30 days"):
            duration(f"{number}{unit}")
    else:
        assert duration(f"{number}{unit}") == meant


@given(text=st.text() | st.floats().map(str) | st.from_regex(r"[0-9]+[a-z]{0,3}", fullmatch=True))
@example("\u0661s")
@example("1e9")
@example("nan")
@example("9" * 5000)
def test_duration_takes_or_refuses_any_text(text: str) -> None:
    try:
        length = duration(text)
    except ValueError:
        return
    assert timedelta(0) <= length <= timedelta(days=30)
    assert text.strip()[0] in "0123456789"
