"""Likely secrets, recognised by their shape.  What was found is named, never repeated.

Four rules, in this order.  A *format* is a row of `FORMATS`: text that begins a word and goes on
like the keys of an issuer.  A *URL* with a password before its host.  An *authorization*:
the word Bearer or Basic, and what follows.  An *assignment*: a name such as `password`, a colon or
an equals sign, and a value; in JSON, a member whose key ends in such a name.

Formats say enough by themselves.  The value of an assignment does not: `password=validation` is
prose, and `token: 12345678` a count.  A value counts as a secret if

    - it is long enough (8 characters in a text, 6 as a member of an object), without white space;
    - it has both letters and digits.  Keys that machines make have them: of 20 characters in
      base64, 97 in 100 have a digit, of 32 hexadecimal ones nearly all.  Words and counts do not.
      After `password` digits are enough: it counts nothing;
    - it is no name: words of letters with a number before or behind, joined by `-_./:`, such as
      oauth2-proxy, v2/beta1 or secrets_2024.json.  A random text with such marks has letters and
      digits mixed within its words;
    - it stands for no other: `$NAME`, `${…}`, `<…>`, `%NAME%`, or a word such as redacted.

So a password of plain words is taken for prose, and a word with a number in it for a password.
Entropy was not used: of 8 to 20 characters it tells English from random text no better than digits
do, and neither a person nor a test can foresee its verdict.

Cost: a payload that holds none of the starts is searched for substrings only.  Expressions are
compiled when they are first needed: few calls ever need one.

A row of `FORMATS`, of which the page on secrets is made, matches where one of its `starts` stands
at the beginning of a word, followed by `body`, a regular expression.  Rules of the table, each
checked by a test:

    - a start is literal text and belongs to one row, so that a payload without it costs one
      search for a substring and no regular expression;
    - a body counts exactly or at most, or its class ends where a start may follow: no input makes
      the search quadratic;
    - the example is refused, and is put together from pieces, so that no scanner of repositories
      takes this file for a leak.

The lengths are those that the issuers document or that gitleaks and trufflehog look for; where a
start says enough by itself, shorter keys count as well, because formats grow and shrink.
"""

import re
from functools import cache

from msgspec import Struct

WORD = r"[A-Za-z0-9_-]"
ALNUM = r"[A-Za-z0-9]"
HEX = r"[0-9a-f]"

# Letters and digits as keys have them; no key of anybody.
_BODY = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0" * 4
_HEX = "0f1e2d3c4b5a69788796a5b4c3d2e1f0" * 4
_UPPER = "QWERTY234567ASDFGH" * 4


class Format(Struct, frozen=True):
    """`any_case`: letters count in either case, as the original has it."""

    kind: str
    starts: tuple[str, ...]
    body: str
    example: str
    source: str
    any_case: bool = False


FORMATS = (
    # --- models ---
    Format("an Anthropic key", ("sk-ant-",), WORD + "{16}",
           "sk-" + "ant-api03-" + _BODY[:93] + "AA", "Anthropic: API, admin and OAuth keys"),
    Format("an OpenAI key", ("sk-proj-", "sk-svcacct-", "sk-admin-"), WORD + "{16}",
           "sk-" + "proj-" + _BODY[:74],
           "OpenAI: keys of projects, service accounts and administrators"),
    Format("an OpenRouter key", ("sk-or-v1-",), HEX + "{32}",
           "sk-" + "or-v1-" + _HEX[:64], "OpenRouter"),
    Format("an API key", ("sk-", "pk-", "rk-", "ak-"), ALNUM + "{20}",
           "sk" + "-" + _BODY[:48],
           "OpenAI's first keys and all that have this form; the original refuses them, too",
           any_case=True),
    Format("an API key", ("sk_", "pk_", "rk_", "ak_"), r"(?=[a-z]{0,19}[0-9])" + ALNUM + "{20}",
           "pk" + "_" + _BODY[:32],
           "all that have this form, with a digit: without one it is a name in a program",
           any_case=True),
    Format("a Groq key", ("gsk_",), ALNUM + "{40}", "gsk" + "_" + _BODY[:52], "Groq"),
    Format("an xAI key", ("xai-",), ALNUM + "{40}", "xai" + "-" + _BODY[:80], "xAI"),
    Format("a Hugging Face token", ("hf_", "api_org_"), ALNUM + "{30}",
           "hf" + "_" + _BODY[:34], "Hugging Face: users and organisations"),
    Format("a Perplexity key", ("pplx-",), ALNUM + "{40}", "pplx" + "-" + _BODY[:48], "Perplexity"),
    Format("a Replicate token", ("r8_",), ALNUM + "{37}", "r8" + "_" + _BODY[:37], "Replicate"),
    Format("a LangSmith key", ("lsv2_pt_", "lsv2_sk_"), HEX + "{32}",
           "lsv2" + "_pt_" + _HEX[:32] + "_" + _HEX[:10], "LangSmith: personal and service keys"),
    # --- source code and packages ---
    Format("a GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"[A-Za-z0-9_]{30}",
           "gh" + "p_" + _BODY[:36], "GitHub: personal, OAuth, app and refresh tokens"),
    Format("a GitHub token", ("github_pat_",), r"[A-Za-z0-9_]{22}",
           "github" + "_pat_" + _BODY[:22] + "_" + _BODY[:59],
           "GitHub: fine-grained personal tokens"),
    Format("a GitLab token",
           ("glpat-", "gldt-", "glrt-", "glptt-", "glsoat-", "glft-", "glagent-", "glcbt-",
            "glimt-", "glffct-", "gloas-"), WORD + "{20}",
           "gl" + "pat-" + _BODY[:20],
           "GitLab: personal, deploy, runner, trigger and other tokens"),
    Format("an npm token", ("npm_",), ALNUM + "{36}", "npm" + "_" + _BODY[:36], "npm"),
    Format("a PyPI token", ("pypi-AgE",), WORD + "{16}",
           "pypi" + "-AgEIcHlwaS5vcmc" + _BODY[:70], "PyPI and TestPyPI: macaroons"),
    Format("a RubyGems key", ("rubygems_",), HEX + "{48}",
           "rubygems" + "_" + _HEX[:48], "RubyGems"),
    Format("a Docker token", ("dckr_pat_", "dckr_oat_"), WORD + "{20}",
           "dckr" + "_pat_" + _BODY[:27], "Docker Hub: personal and organisation tokens"),
    Format("an Atlassian token", ("ATATT3", "ATCTT3"), r"[A-Za-z0-9_=-]{40}",
           "ATA" + "TT3" + _BODY[:100], "Atlassian: Jira, Confluence, Bitbucket"),
    Format("a Linear key", ("lin_api_",), ALNUM + "{32}", "lin" + "_api_" + _BODY[:40], "Linear"),
    Format("a Notion token", ("ntn_",), r"[0-9]{11}" + ALNUM + "{32}",
           "ntn" + "_" + "12345678901" + _BODY[:35], "Notion: since 2024"),
    Format("a Sentry token", ("sntrys_", "sntryu_"), r"[A-Za-z0-9+/=_]{40}",
           "sntry" + "u_" + _HEX[:64], "Sentry: organisations and users"),
    # --- clouds ---
    Format("an AWS access key", ("AKIA", "ASIA", "ABIA", "ACCA"), r"[A-Z0-9]{16}",
           "AK" + "IA" + _UPPER[:16], "AWS: long-lived, temporary and context-specific keys"),
    Format("an AWS Bedrock key", ("ABSK",), r"[A-Za-z0-9+/]{100}",
           "AB" + "SK" + _BODY[:110], "AWS Bedrock: long-lived keys"),
    Format("a Google API key", ("AIza",), WORD + "{35}", "AI" + "za" + _BODY[:35], "Google"),
    Format("a Google OAuth token", ("ya29.",), WORD + "{20}",
           "ya" + "29." + _BODY[:60], "Google: access tokens"),
    Format("a Google client secret", ("GOCSPX-",), WORD + "{20}",
           "GOC" + "SPX-" + _BODY[:28], "Google: OAuth clients"),
    Format("an Azure client secret", ("Q~",), r"(?<=[A-Za-z0-9_~.]{3}[0-9]Q~)[A-Za-z0-9_~.-]{31}",
           "aB3" + "8Q~" + _BODY[:34],
           "Microsoft Entra; three characters and a digit come before it"),
    Format("an Azure account key", ("AccountKey=", "SharedAccessKey="), r"[A-Za-z0-9+/]{40}",
           "Account" + "Key=" + _BODY[:86] + "==", "Azure: storage, service bus, event hubs"),
    Format("a DigitalOcean token", ("dop_v1_", "doo_v1_", "dor_v1_"), HEX + "{64}",
           "dop" + "_v1_" + _HEX[:64], "DigitalOcean: personal, OAuth and refresh tokens"),
    Format("a Heroku key", ("HRKU-AA",), WORD + "{50}", "HRKU" + "-AA" + _BODY[:58], "Heroku"),
    Format("a Fly.io token", ("fm2_", "fm1a_", "fm1r_", "fo1_"), r"[A-Za-z0-9+/_-]{43}",
           "fo1" + "_" + _BODY[:43], "Fly.io"),
    Format("a Vault token", ("hvs.", "hvb.", "hvr."), WORD + "{24}",
           "hv" + "s." + _BODY[:95], "HashiCorp Vault: service, batch and recovery tokens"),
    Format("a Terraform token", (".atlasv1.",), r"(?<=[A-Za-z0-9]{14}\.atlasv1\.)" + WORD + "{60}",
           _BODY[:14] + ".atlas" + "v1." + _BODY[:65],
           "HCP Terraform; fourteen letters and digits come before it"),
    Format("a Databricks token", ("dapi",), HEX + "{32}", "da" + "pi" + _HEX[:32], "Databricks"),
    Format("a PlanetScale secret", ("pscale_tkn_", "pscale_pw_", "pscale_oauth_"),
           r"[A-Za-z0-9_=.-]{32}", "pscale" + "_pw_" + _BODY[:43], "PlanetScale"),
    Format("a Supabase key", ("sbp_", "sb_secret_"), WORD + "{24}",
           "sb" + "p_" + _HEX[:40], "Supabase: access tokens and secret keys"),
    Format("a Pulumi token", ("pul-",), HEX + "{40}", "pul" + "-" + _HEX[:40], "Pulumi"),
    Format("a Doppler token", ("dp.pt.", "dp.st.", "dp.ct.", "dp.sa."), r"[A-Za-z0-9._-]{40}",
           "dp" + ".pt." + _BODY[:43], "Doppler"),
    Format("a Tailscale key", ("tskey-",), r"[a-z]{3,12}-[A-Za-z0-9]{8,20}-[A-Za-z0-9]{20}",
           "tskey" + "-auth-" + _BODY[:11] + "-" + _BODY[:28], "Tailscale"),
    Format("a 1Password token", ("ops_eyJ",), r"[A-Za-z0-9+/=_-]{40}",
           "ops" + "_eyJ" + _BODY[:100], "1Password: service accounts"),
    # --- services ---
    Format("a Slack token",
           ("xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxo-", "xoxe-", "xapp-"),
           r"[A-Za-z0-9-]{20}",
           "xox" + "b-" + "123456789012-" + _BODY[:24],
           "Slack: bots, users, apps, refresh and configuration tokens"),
    Format("a Slack webhook", ("hooks.slack.com/",),
           r"(?:services|workflows|triggers)/[A-Za-z0-9+/]{30}",
           "https://hooks." + "slack.com/services/" + "T0/B0/" + _BODY[:40],
           "Slack: the address alone permits writing"),
    Format("a Stripe key", ("sk_live_", "rk_live_", "sk_test_", "rk_test_", "sk_prod_", "rk_prod_"),
           ALNUM + "{10}", "sk" + "_live_" + _BODY[:24], "Stripe: secret and restricted keys"),
    Format("a webhook secret", ("whsec_",), r"[A-Za-z0-9+/=]{24}",
           "whsec" + "_" + _BODY[:32], "Stripe, Svix and others that sign what they send"),
    Format("a SendGrid key", ("SG.",), r"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16}",
           "SG" + "." + _BODY[:22] + "." + _BODY[:43], "SendGrid"),
    Format("a Twilio key", ("SK",), HEX + r"{32}(?![0-9A-Za-z])",
           "S" + "K" + _HEX[:32], "Twilio: exactly 32 digits, lower case"),
    Format("a Mailgun key", ("key-",), HEX + r"{32}(?![0-9A-Za-z])",
           "key" + "-" + _HEX[:32], "Mailgun: private keys"),
    Format("a Shopify token", ("shpat_", "shpca_", "shppa_", "shpss_"), r"[0-9a-fA-F]{32}",
           "shp" + "at_" + _HEX[:32], "Shopify: apps and shared secrets"),
    Format("a Square token", ("sq0atp-", "sq0csp-"), WORD + "{22}",
           "sq0" + "atp-" + _BODY[:22], "Square: access tokens and OAuth secrets"),
    Format("a Telegram token", (":AA",), r"(?<=[0-9]{8}:AA)[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])",
           "123456789" + ":A" + "A" + _BODY[:33],
           "Telegram: bots; the number of the bot comes before it"),
    Format("a Discord webhook", ("discord.com/api/webhooks/", "discordapp.com/api/webhooks/"),
           r"[0-9]{15,22}/[A-Za-z0-9_-]{40}",
           "https://discord" + ".com/api/webhooks/" + "1234567890123456789/" + _BODY[:68],
           "Discord: the address alone permits writing"),
    Format("a Grafana token", ("glsa_", "glc_"), r"[A-Za-z0-9+/]{32}",
           "gl" + "sa_" + _BODY[:32] + "_" + _HEX[:8],
           "Grafana: service accounts and cloud access policies"),
    Format("a New Relic key", ("NRAK-",), r"[A-Z0-9]{27}", "NR" + "AK-" + _UPPER[:27], "New Relic"),
    Format("a Postman key", ("PMAK-",), HEX + "{24}-" + HEX + "{34}",
           "PM" + "AK-" + _HEX[:24] + "-" + _HEX[:34], "Postman"),
    Format("a Figma token", ("figd_",), WORD + "{30}", "fig" + "d_" + _BODY[:40], "Figma"),
    # --- keys and tokens of no issuer ---
    Format("a private key", ("-----BEGIN ",), r"[A-Z0-9 ]{0,40}PRIVATE KEY",
           "-----BEGIN " + "ENCRYPTED PRIVATE KEY-----",
           "PEM and PGP: RSA, EC, DSA, OpenSSH, PKCS #8, encrypted or not"),
    Format("a private key", ("PuTTY-User-Key-File-",), r"[0-9]",
           "PuTTY-" + "User-Key-File-3: ssh-ed25519", "PuTTY"),
    Format("an age key", ("AGE-SECRET-KEY-",), r"(?:PQ-)?1[A-Z0-9]{20}",
           "AGE-" + "SECRET-KEY-1" + _UPPER[:58], "age: identities"),
    Format("a JSON web token", ("eyJ",), r"[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}\.",
           "ey" + "J" + _BODY[:36] + "." + _BODY[:50] + "." + _BODY[:43],
           "RFC 7519: signed, with three parts"),
)  # fmt: skip


# --- the search -----------------------------------------------------------------------------------

# The original asks for eight characters of an assignment.  A member of an object cannot be prose.
ASSIGNED_CHARACTERS = 8
MEMBER_CHARACTERS = 6
# Beyond this a value is content: an embedded file, an image.
VALUE_CHARACTERS = 4096

_NAMES = (
    *("password", "passwd", "passphrase", "secret", "token", "api_key", "api-key", "apikey"),
    *("access_key", "access-key", "accesskey", "private_key", "secret_key", "authorization"),
)
_ENDS = (
    *(name.replace("-", "").replace("_", "") for name in _NAMES),
    *("signingkey", "encryptionkey", "credential", "credentials"),
)
# Tokens that say where a list goes on or which claim is the newest; they open nothing.
_HARMLESS_ENDS = tuple(
    f"{what}token"
    for what in (
        *("page", "next", "sync", "continuation", "resume", "cursor", "fencing", "lease"),
        "idempotency",
    )
)
_KEY_PARTS = ("passw", "passphrase", "secret", "token", "key", "credential", "authoriz")
_STAND_INS = ("redacted", "placeholder", "example", "changeme", "xxxx", "dummy")


def looks_like(text: str) -> str | None:
    """What kind of secret `text` seems to hold, if any."""
    return _in_text(text, text.lower())


def in_payload(texts: list[str], members: list[tuple[str, str]]) -> str | None:
    """What kind of secret keys and strings seem to hold, or strings under the keys they have."""
    # Joined, so that a payload of many short strings is searched once; no secret spans lines.
    text = "\n".join(texts)
    lowered = text.lower()
    kind = _in_text(text, lowered)
    if kind is None and members and any(map(lowered.__contains__, _KEY_PARTS)):
        return _in_members(members)
    return kind


def _in_text(text: str, lowered: str) -> str | None:
    kind = _format_in(text, _EXACT) or _format_in(lowered, _ANY_CASE)
    if kind is not None:
        return kind
    if "://" in text and _url().search(text):
        return "a URL with a password"
    if ("bearer " in lowered or "basic " in lowered) and _assigns(_authorization(), lowered):
        return "an authorization"
    if ":" in text or "=" in text:
        for name in _NAMES:
            if name in lowered and _assigns(_assignment(name), lowered, digits=name[:4] == "pass"):
                return "a password or token"
    return None


def _in_members(members: list[tuple[str, str]]) -> str | None:
    for key, value in members:
        if len(value) > VALUE_CHARACTERS or not _names_a_secret(key):
            continue
        if is_secret(value.strip(), MEMBER_CHARACTERS, digits="pass" in key.lower()):
            return "a password or token"
    return None


def is_secret(value: str, least: int = ASSIGNED_CHARACTERS, *, digits: bool = False) -> bool:
    """Whether the value of an assignment is one, and not a word, a count, a name or a stand-in.

    `digits`: without letters, too, because a password counts nothing.
    """
    word, shapes = value.lower(), _shapes()
    if len(word) < least or shapes.space.search(word) or not shapes.digit.search(word):
        return False
    if not (digits or shapes.letter.search(word)):
        return False
    if shapes.stand_in.match(word) or any(map(word.__contains__, _STAND_INS)):
        return False
    parts = shapes.marks.split(word)
    return len(parts) == 1 or not all(map(shapes.part.fullmatch, parts))


def _names_a_secret(key: str) -> bool:
    name = _shapes().between.sub("", key.lower())
    return name.endswith(_ENDS) and not name.endswith(_HARMLESS_ENDS)


def _assigns(pattern: re.Pattern[str], text: str, *, digits: bool = False) -> bool:
    return any(is_secret(found[1], digits=digits) for found in pattern.finditer(text))


def _format_in(text: str, groups: dict[str, tuple[str, ...]]) -> str | None:
    for mark, starts in groups.items():
        # One character first: a text without underscores has none of two dozen kinds.
        if mark in text and any(map(text.__contains__, starts)):
            for start in starts:
                if start in text and _format(start).search(text):
                    return FORMATS[_ROWS[start]].kind
    return None


def _grouped(starts: list[str]) -> dict[str, tuple[str, ...]]:
    """Starts by a character that each of them has."""
    groups: dict[str, list[str]] = {}
    for start in starts:
        mark = next((mark for mark in "_-." if mark in start), start[0])
        groups.setdefault(mark, []).append(start)
    return {mark: tuple(starts) for mark, starts in groups.items()}


_ROWS = {start: place for place, row in enumerate(FORMATS) for start in row.starts}
_EXACT = _grouped([start for row in FORMATS if not row.any_case for start in row.starts])
_ANY_CASE = _grouped([start for row in FORMATS if row.any_case for start in row.starts])


class _Shapes:
    """What a value is made of."""

    def __init__(self) -> None:
        self.digit = re.compile("[0-9]")
        self.letter = re.compile("[a-z]")
        self.space = re.compile(r"\s")
        self.marks = re.compile("[-_./:]+")
        self.part = re.compile("[0-9]{0,4}[a-z]*[0-9]{0,3}")
        self.between = re.compile("[^a-z0-9]+")
        # A variable, a template, or a time: 2026-01-31T10:00:00Z has letters and digits, too.
        self.stand_in = re.compile(r"\$\w+$|\$[{(]|<|\{\{|\[|%\w+%$|\d{4}-\d\d-\d\d")


@cache
def _shapes() -> _Shapes:
    return _Shapes()


@cache
def _format(start: str) -> re.Pattern[str]:
    """A start at the beginning of a word.  It comes first: `re` searches for literals quickly."""
    body, literal = FORMATS[_ROWS[start]].body, re.escape(start)
    if body.startswith("(?<=") or not start[0].isalnum():
        return re.compile(literal + body)  # it says itself what comes before it
    # A body without an end takes a whole run of characters: only the first start in it may count.
    before = "[A-Za-z0-9_-]" if ",}" in body else "[A-Za-z0-9]"
    return re.compile(f"{literal}(?<!{before}{literal}){body}")


@cache
def _url() -> re.Pattern[str]:
    return re.compile(r"://[^\s/?#@:\"']{0,200}:(?![$<{*%]|x{3})[^\s/?#@\"']{1,200}@[\w\[]")


@cache
def _authorization() -> re.Pattern[str]:
    return re.compile(r"(?<![a-z])(?:bearer|basic) {1,4}([a-z0-9._~+/-]{16,4096})")


@cache
def _assignment(name: str) -> re.Pattern[str]:
    value = rf"([^\s\"'`,;&<>(){{}}\[\]]{{{ASSIGNED_CHARACTERS},{VALUE_CHARACTERS}}})"
    return re.compile(re.escape(name) + r"[\"'`]?[ \t]{0,8}(?::=|=>|[:=])[ \t]{0,8}[\"'`]?" + value)
