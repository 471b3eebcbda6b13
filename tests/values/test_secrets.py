"""Likely secrets by their shape: what is refused, what only resembles one, and what a look costs."""

import contextlib
import json
import time

import pytest

from icd.errors import SecretRefused
from icd.values import payloads, secrets
from icd.values.secrets import FORMATS

ALNUM = "Abcdefghij0123456789ABCDEFGHIJ"
HEX = "0123456789abcdef" * 4
JWT = "ey" + "J" + ALNUM[:20] + "." + "ey" + "J" + ALNUM[:20] + "." + ALNUM

ROWS = {f"{row.kind}, {row.starts[0]}": row for row in FORMATS}

# Built from pieces, so that no scanner of repositories takes this file for a leak.
REFUSED = {
    "sk": "s" + "k-" + ALNUM[:20],
    "pk": "p" + "k_" + ALNUM[:20],
    "rk": "r" + "k-" + ALNUM,
    "ak": "a" + "k_" + ALNUM,
    "upper case": "S" + "K-" + ALNUM[:20].upper(),
    "ghp": "gh" + "p_" + ALNUM,
    "gho": "gh" + "o_" + ALNUM,
    "ghu": "gh" + "u_" + ALNUM,
    "ghs": "gh" + "s_" + ALNUM,
    "ghr": "gh" + "r_" + ALNUM[:28] + "_x",
    "anthropic oauth": "sk-" + "ant-oat01-" + ALNUM * 3,
    "openai service account": "sk-" + "svcacct-" + ALNUM,
    "gitlab runner": "gl" + "rt-" + ALNUM[:20],
    "aws temporary": "AS" + "IA" + "ABCDEFGHIJKLMNOP",
    "stripe restricted": "rk" + "_live_" + ALNUM[:24],
    "stripe test": "sk" + "_test_" + ALNUM[:24],
    "slack bot": "xox" + "b-" + ALNUM[:20],
    "slack user": "xox" + "p-" + ALNUM[:20],
    "slack app": "xox" + "a-" + "1234567890-" + ALNUM[:20],
    "slack refresh": "xox" + "r-" + ALNUM[:20],
    "slack session": "xox" + "s-" + ALNUM[:20],
    "slack rotated": "xox" + "e.xox" + "p-1-" + ALNUM,
    "slack level": "xa" + "pp-1-A01234567-1234567890123-" + HEX[:32],
    "shopify shared": "shp" + "ss_" + HEX[:32],
    "json web token": "ey" + "J" + ALNUM[:20] + "." + ALNUM[:20] + ".sig",
    "pem": "-----BEGIN " + "PRIVATE KEY-----",
    "rsa": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "ec": "-----BEGIN " + "EC PRIVATE KEY-----",
    "dsa": "-----BEGIN " + "DSA PRIVATE KEY-----",
    "openssh": "-----BEGIN " + "OPENSSH PRIVATE KEY-----",
    "encrypted": "-----BEGIN " + "ENCRYPTED PRIVATE KEY-----",
    "pgp": "-----BEGIN " + "PGP PRIVATE KEY BLOCK-----",
    "pem after text": "the key is\n-----BEGIN " + "RSA PRIVATE KEY-----\nMIIE",
    "leading space": " gh" + "p_" + ALNUM,
    "in quotes": 'export GITHUB="gh' + "p_" + ALNUM + '"',
    "in a sentence": "see s" + "k-" + ALNUM + ", please",
    "in a header": "x-key:gl" + "pat-" + ALNUM[:20],
    "bearer": "Be" + "arer " + JWT,
    "bearer of no format": "Authorization: Be" + "arer 9f8e7d6c5b4a39281706",
    "bearer cut off": "Be" + "arer ey" + "J" + ALNUM,
    "basic": "Authorization: Ba" + "sic dXNlcjpodW50ZXIyaHVudGVyMg==",
    "url": "postgres://u:" + "pw@h",
    "url with a path": "DATABASE=mysql+pymysql://root:" + "S3cret@db.internal:3306/app",
    "url without a user": "redis://:" + "hunter2@localhost:6379/0",
    "url of a repository": "git clone https://me:" + "hunter2@example.org/x.git",
    "password": "pass" + "word=hunter2hunter2",
    "passwd": "export PASS" + "WD: hunter2hunter2",
    "digits": "pass" + "word=0123456789",
    "secret": "my sec" + "ret = abcd1234",
    "token": "curl -H 'to" + "ken: abcd1234'",
    "api_key": "API_" + "KEY=abcd1234",
    "apikey": "api" + "key:abcd1234",
    "api-key": "x-api-" + "key: abcd1234",
    "access_key": "access_" + "key\t=\tabcd1234",
    "private_key": "private_" + "key=abcd1234",
    "aws secret": "aws_secret_access_" + "key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "Zq1",
    "walrus": "to" + 'ken := "a1b2c3d4e5"',
    "json inside": '{"pass' + 'word": "hunter2hunter2"}',
    "an arrow": "pass" + "word => 'hunter2hunter2'",
    "twice": "pass" + "word=pass" + "word=hunter2x",
}

# What people and programs write, and what must not be mistaken for a secret.
TAKEN = {
    "empty": "",
    "prose": "the password is in the vault",
    "a bug": "fixed password=validation bug",
    "a name in a program": "pk_customerorderhistoryitems and sk_buffallocationfunctionname",
    "see": "token: see docs",
    "none": "the secret: none of your business",
    "advice": "Password: required, token: optional",
    "a question": "password: what is it?",
    "a count": "token: 12345678",
    "counts": "tokens=12345678 max_tokens: 200000",
    "a rate": "token: 100k/200k used",
    "a date": "secret: 2026-01-31T10:00:00Z",
    "a name": "token: oauth2-proxy",
    "a file name": "secret: secrets_2024_v2.json",
    "a path": "token: /run/secrets/db1/token2",
    "a module": "secret = app.settings2.load",
    "a call": "password = getpass.getpass()",
    "code": "token = tokens[position1]",
    "a variable": "password=$DB_PASSWORD_2",
    "a template": "password=${DB_PASSWORD2} token: {{ secrets.TOKEN_1 }}",
    "redacted": "token: <redacted1>, password=********",
    "stand-in": "api_key=xxxxxxxx1 token=redacted123",
    "short password": "pass" + "word=1234567",
    "password with a gap": "pass" + "word=1234567 8",
    "variable name": "$GITHUB_TOKEN",
    "short api key": "s" + "k-" + ALNUM[:19],
    "a task": "task-" + ALNUM + " and disk_" + ALNUM,
    "a package": "sk-learn-contrib-lightning and pk-feature-branch-name",
    "npm settings": "npm_config_registry and npm_lifecycle_event_of_something_long_enough",
    "short github": "gh" + "p_" + ALNUM[:29],
    "short slack": "xox" + "b-" + ALNUM[:19],
    "slack of no kind": "xox" + "q-" + ALNUM,
    "short jwt": "ey" + "J" + ALNUM[:19] + "." + ALNUM[:20] + ".",
    "jwt without signature": "ey" + "J" + ALNUM[:20] + "." + ALNUM[:20],
    "short aws": "AK" + "IA" + "ABCDEFGHIJKLMNO",
    "public key": "-----BEGIN " + "PUBLIC KEY-----",
    "certificate": "-----BEGIN " + "CERTIFICATE-----",
    "sha-1": "3f786850e387550fdab836ed7e6dc881de23001b",
    "sha-256": "sha256:" + HEX,
    "uuid": "550e8400-e29b-41d4-a716-446655440000",
    "a session": "session 0190f3a2-7b1c-7def-8a9b-1c2d3e4f5a6b took over",
    "base64": "VGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcyBvdmVyIHRoZSBsYXp5IGRvZw==",
    "a url": "https://example.org:8443/a@b?token_type=bearer",
    "an ipv6 url": "http://[::1]:8080/x@y",
    "a url of ssh": "ssh://git@example.org:22/x.git",
    "a url with a variable": "postgres://u:$PGPASSWORD@h/db and https://x:${TOKEN}@h",
    "a url with a stand-in": "postgres://u:****@h and https://u:<password>@h",
    "a bearer in prose": "bearer of bad news, basic understanding",
    "SKU": "SKU and SKETCH-0123456789",
    "a keyboard": "key-value pairs, key-0123",
}


def test_the_example_of_a_format_is_recognised_as_that_kind():
    for row in ROWS.values():
        assert secrets.looks_like(row.example) == row.kind, row


def test_a_format_is_recognised_inside_a_text():
    for wrap in [" {}", "key={}", "({})", "a line\n{}\nanother", '"{}",']:
        for row in ROWS.values():
            assert secrets.looks_like(wrap.format(row.example)) is not None, (wrap, row)


def test_a_start_alone_is_no_secret():
    for row in ROWS.values():
        for start in row.starts:
            assert secrets.looks_like(f"keys begin with {start} as you know") is None, row


def test_a_start_belongs_to_one_row():
    starts = [start for row in FORMATS for start in row.starts]

    assert len(starts) == len(set(starts))


def test_a_secret_is_recognised_by_its_shape():
    for text in REFUSED.values():
        assert secrets.looks_like(text) is not None, text


def test_the_kind_that_is_named_repeats_nothing_of_the_secret():
    for text in REFUSED.values():
        kind = secrets.looks_like(text)

        assert ALNUM[:8].lower() not in kind.lower(), text
        assert "hunter2" not in kind, text
        assert "abcd1234" not in kind, text


def test_what_only_resembles_a_secret_is_taken():
    for text in TAKEN.values():
        assert secrets.looks_like(text) is None, text
        payloads.check(json.dumps({"note": text}).encode())


# --- members of an object -------------------------------------------------------------------

MEMBERS_REFUSED = [
    {"password": "hunter2"},
    {"password": " hunter2hunter2 "},
    {"password": "12345678"},
    {"DB_PASSWORD": "Tr0ub4dor&3"},
    {"db": {"rootPasswd": "x9y8z7w6"}},
    {"passphrase": "correct4horse"},
    {"client_secret": "a1b2c3d4e5f6"},
    {"accessToken": "9f8e7d6c5b4a"},
    {"x-api-key": "0a1b2c3d"},
    {"list": [{"apiKey": "0a1b2c3d"}]},
    {"aws_secret_access_key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "Zq1"},
    {"private_key": "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"},
    {"token": "550e8400-e29b-41d4-a716-446655440000"},
]
MEMBERS_TAKEN = [
    {"idempotency_token": "run-8f3a2b1c"},
    {"password": None},
    {"password": ""},
    {"password": True},
    {"password": "changed"},
    {"password": 12345678},
    {"password": "2026-01-31"},
    {"password": "must have 8 characters and 1 digit"},
    {"password": "${DB_PASSWORD}"},
    {"password": "${DB_PASSWORD_2}"},
    {"password": "$DB_PASSWORD2"},
    {"password": "<redacted-1>"},
    {"token": "$GITHUB_TOKEN"},
    {"token": "{{ secrets.TOKEN_1 }}"},
    {"token": "****"},
    {"token": 17},
    {"token": "12345678"},
    {"token": "oauth2-proxy"},
    {"token": "vault:secret/data/app1"},
    {"token": "2026-01-31T10:00:00Z"},
    {"api_key": "<redacted>"},
    {"api_key": "REDACTED_1234"},
    {"tokens": 1234},
    {"tokens": "a1b2c3d4e5"},
    {"token_count": "12345678"},
    {"token_type": "bearer2x9y8"},
    {"secret_name": "db1x9y8z7"},
    {"next_page_token": "CAEQAA1b2c3"},
    {"fencing_token": "17a18b19"},
    {"key": "a1b2c3d4e5f6"},
    {"sha": "3f786850e387550fdab836ed7e6dc881de23001b"},
    {"session_id": "550e8400-e29b-41d4-a716-446655440000"},
    {"file": "tests/test_tokens_2.py", "line": "secrets.py:12"},
    {"password_file": "/run/secrets/db1"},
    {"private_key_path": "~/.ssh/id_ed25519"},
]


@pytest.mark.parametrize("payload", MEMBERS_REFUSED, ids=json.dumps)
def test_a_member_that_is_named_like_a_secret_and_looks_like_one_is_refused(payload):
    with pytest.raises(SecretRefused, match="a password or token"):
        payloads.check(json.dumps(payload).encode())


@pytest.mark.parametrize("payload", MEMBERS_TAKEN, ids=json.dumps)
def test_a_member_that_is_only_named_like_a_secret_is_taken(payload):
    payloads.check(json.dumps(payload).encode())


def test_a_member_of_which_a_later_one_has_the_same_key_is_judged():
    with pytest.raises(SecretRefused):
        payloads.check(b'{"password":"hunter2hunter2","password":null}')


# --- what a look costs ----------------------------------------------------------------------

# A quarter of a second would be felt; measured are 90 ms at most, for any of these.
SECONDS = 2.0
STRING = 90_000
UNITS = sorted(
    {start for row in FORMATS for start in row.starts}
    | {"eyJa.", "eyJ" + "a" * 19 + ".", "password=", "password: ", "password  ", "token =aaaaaaa "}
    | {"://", "://a:", "://a:b", "bearer ", "basic aaaaaaaa", "SG." + "a" * 31, "password=$ "}
    | {"password=a-1", "1-", "tskey-auth-", "secret token=", "  ", "a1"}
)


@pytest.mark.long
@pytest.mark.parametrize("unit", UNITS)
def test_no_megabyte_makes_the_search_slow(unit):
    text = unit * (STRING // len(unit))
    raw = json.dumps([text] * 11).encode()
    began = time.process_time()

    with contextlib.suppress(SecretRefused):
        payloads.check(raw)

    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize("unit", ["eyJ", "eyJa.", "password=", "://a:", "basic aaaaaaaa", "a-1."])
def test_four_times_the_text_takes_about_four_times_the_time(unit):
    def seconds(size):
        text = unit * (size // len(unit))
        took = []
        for _ in range(3):
            began = time.process_time()
            secrets.looks_like(text)
            took.append(time.process_time() - began)
        return min(took)

    assert seconds(1_200_000) < 10 * seconds(300_000) + 0.02
