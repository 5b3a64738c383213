from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wakeful.dsn import HIDDEN, checked, hidden

USER, WORD, MORE = "u5eruser", "pa55word", "m0rem0re"
SECRETS = (USER, WORD, MORE)
JOINTS = st.text(st.sampled_from("@:/?#[]&=%, '\\\"\t;+x1"), max_size=3)


def assert_safe(text: str) -> None:
    shown = hidden(text)
    assert not [secret for secret in SECRETS if secret in shown], (text, shown)


@given(joint=JOINTS)
def test_escaped_uri_keeps_host_and_database(joint: str) -> None:
    text = f"postgresql://{USER}:{quote(WORD + joint + MORE, safe='')}@db.example:5433/acme?sslmode=require"
    assert (
        hidden(checked(text))
        == f"host=db.example port=5433 dbname=acme sslmode=require user={HIDDEN} password={HIDDEN}"
    )


@given(joint=JOINTS)
def test_quoted_pairs_keep_host_and_database(joint: str) -> None:
    password = (WORD + joint + MORE).replace("\\", "\\\\").replace("'", "\\'")
    text = f"host=db user={USER} password='{password}' dbname=acme options='-c role={MORE}'"
    assert hidden(checked(text)) == f"host=db dbname=acme user={HIDDEN} password={HIDDEN} options={HIDDEN}"


@given(first=JOINTS, second=JOINTS, tail=st.sampled_from(["", "/db", ":5432/db", "/db?sslmode=require", "?host=/run"]))
@example(first="", second="@", tail="/db")
@example(first="", second="/", tail="/db")
@example(first="", second="?", tail="/db")
def test_raw_password_in_a_uri_never_shows(first: str, second: str, tail: str) -> None:
    assert_safe(f"postgresql://{USER}:{first}{WORD}{second}{MORE}@host{tail}")


@given(first=JOINTS, second=JOINTS)
def test_raw_password_in_pairs_never_shows(first: str, second: str) -> None:
    assert_safe(f"host=db user={USER} password={first}{WORD}{second}{MORE} dbname=acme")
    assert_safe(f"password={first}{WORD}{second}{MORE}")


@given(text=st.text())
@example("postgresql://\udcff@h/d")
@example("host=h\0")
def test_any_text_is_hidden_or_readable(text: str) -> None:
    assert isinstance(hidden(text), str)


@pytest.mark.parametrize("text", ["", "  ", "db", "postgresql://h/d?x=1", "host", "http://h/d", "host=h\0 port=1"])
def test_what_libpq_cannot_read_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"^not a connection string$"):
        checked(text)


def test_database_that_is_itself_a_connection_string_is_hidden() -> None:
    assert hidden(f"dbname=postgresql://{USER}:{WORD}@h/d") == HIDDEN
