"""Likely secrets by their shape."""

import pytest

from icd.core import secrets

ALNUM = "Abcdefghij0123456789ABCDEFGHIJ"

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
    "slack bot": "xox" + "b-" + ALNUM[:20],
    "slack user": "xox" + "p-" + ALNUM[:20],
    "slack app": "xox" + "a-" + "1234567890-" + ALNUM[:20],
    "slack refresh": "xox" + "r-" + ALNUM[:20],
    "slack session": "xox" + "s-" + ALNUM[:20],
    "json web token": "ey" + "J" + ALNUM[:20] + "." + ALNUM[:20] + ".sig",
    "aws": "AK" + "IA" + "ABCDEFGHIJKLMNOP",
    "pem": "-----BEGIN " + "PRIVATE KEY-----",
    "rsa": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "ec": "-----BEGIN " + "EC PRIVATE KEY-----",
    "dsa": "-----BEGIN " + "DSA PRIVATE KEY-----",
    "openssh": "-----BEGIN " + "OPENSSH PRIVATE KEY-----",
    "password": "pass" + "word=hunter2hunter2",
    "passwd": "export PASS" + "WD: hunter2hunter2",
    "secret": "my sec" + "ret = abcdefgh",
    "token": "curl -H 'to" + "ken: abcdefgh'",
    "api_key": "API_" + "KEY=abcdefgh",
    "apikey": "api" + "key:abcdefgh",
    "api-key": "x-api-" + "key: abcdefgh",
    "access_key": "access_" + "key\t=\tabcdefgh",
    "private_key": "private_" + "key=abcdefgh",
}

TAKEN = {
    "empty": "",
    "prose": "the password is in the vault",
    "short api key": "s" + "k-" + ALNUM[:19],
    "api key inside": "see s" + "k-" + ALNUM,
    "short github": "gh" + "p_" + ALNUM[:29],
    "short slack": "xox" + "b-" + ALNUM[:19],
    "slack of no kind": "xox" + "q-" + ALNUM,
    "short jwt": "ey" + "J" + ALNUM[:19] + "." + ALNUM[:20] + ".",
    "jwt without signature": "ey" + "J" + ALNUM[:20] + "." + ALNUM[:20],
    "short aws": "AK" + "IA" + "ABCDEFGHIJKLMNO",
    "public key": "-----BEGIN " + "PUBLIC KEY-----",
    "short password": "pass" + "word=1234567",
    "password with a gap": "pass" + "word=1234567 8",
    "variable name": "$GITHUB_TOKEN",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_a_secret_is_recognised_by_its_shape(text):
    assert secrets.looks_like(text) is not None


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_the_kind_that_is_named_repeats_nothing_of_the_secret(text):
    kind = secrets.looks_like(text)

    assert ALNUM[:8].lower() not in kind.lower()
    assert "hunter2" not in kind
    assert "abcdefgh" not in kind


@pytest.mark.parametrize("text", TAKEN.values(), ids=TAKEN)
def test_what_only_resembles_a_secret_is_taken(text):
    assert secrets.looks_like(text) is None
